"""Heartbeats: what they carry, what their answers do, and what outages do to them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import asdict, replace

import msgspec
import pytest

from corral.agent.config import AgentConfig
from corral.agent.watch.sample import Sampler
from corral.core.nodes.worker import WorkerSpec
from corral.wire.agent import DeclaredWorker
from tests.unit.agent.conftest import Book, Running, is_alive, wait_until
from tests.unit.agent.standin import StandInManager

Start = Callable[[AgentConfig], Running]


def test_registration_declares_this_nodes_own_workers(
    manager: StandInManager, config: AgentConfig, start: Start
) -> None:
    spec = WorkerSpec("echo", "corral:EchoWorker", ("echo",), concurrency=2)
    start(replace(config, workers=(spec,), labels={"zone": "a"}))
    card = manager.wait_for(lambda: manager.registrations)[0]
    declared = DeclaredWorker(
        name="echo",
        worker_class="corral:EchoWorker",
        job_types=["echo"],
        concurrency=2,
    )
    assert msgspec.convert(card["workers"], list[DeclaredWorker]) == [declared]
    assert card["labels"] == {"zone": "a"}
    assert card["capabilities"]["cpu_count"] >= 1


def test_beats_are_numbered_and_samples_come_at_their_own_pace(
    manager: StandInManager, config: AgentConfig, start: Start
) -> None:
    start(replace(config, beat_s=0.05))
    beats = manager.wait_for(lambda: len(manager.beats) > 10 and manager.beats)
    assert [beat["seq"] for beat in beats[:5]] == [1, 2, 3, 4, 5]
    assert beats[0]["sample"] is not None
    assert all(beat["sample"] is None for beat in beats[1:5])


def test_a_sample_has_every_field_of_the_wire(config: AgentConfig) -> None:
    config.home.mkdir()
    reading = Sampler(config.home).read()
    assert set(asdict(reading)) == {
        "cpu_count",
        "cpu_percent",
        "memory_total_mb",
        "memory_used_mb",
        "disk_total_gb",
        "disk_used_gb",
        "network_rx_bytes",
        "network_tx_bytes",
        "load_1m",
        "load_5m",
        "load_15m",
    }
    assert 0 < reading.memory_used_mb < reading.memory_total_mb


def test_a_drop_reaches_the_worker_that_holds_the_task_and_no_other(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    manager.workers = [book.worker("w1", held=[["t1", 3]]), book.worker("w2")]
    start(config)
    manager.await_worker(lambda e: e["held"] == [["t1", 3]])
    manager.await_worker(lambda e: e["worker_id"] == "w2" and e["state"] == "ready")
    manager.drop = [["t1", 3]]
    wait_until(lambda: [["t1", 3]] in book.find("drop", "w1"))
    assert book.find("drop", "w2") == []


def test_a_drop_nobody_is_known_to_hold_reaches_all(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    manager.workers = [book.worker("w1"), book.worker("w2")]
    manager.drop = [["t9", 1]]
    start(config)
    wait_until(lambda: book.find("drop", "w1") and book.find("drop", "w2"))


def test_an_epoch_conflict_ends_all_workers_and_registers_again(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    manager.workers = [book.worker(deaf=True)]
    start(config)
    first = manager.await_worker(lambda e: e["state"] == "ready")
    manager.epoch += 10
    again = manager.await_worker(
        lambda e: e["state"] == "ready" and e["pid"] != first["pid"]
    )
    wait_until(lambda: not is_alive(first["pid"]))
    assert again["restarts"] == 0
    assert [row["epoch"] for row in book.find("greeting")] == [1, 12]


def test_an_agent_outlives_a_manager_restart_with_its_workers(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    manager.workers = [book.worker()]
    start(config)
    first = manager.await_worker(lambda e: e["state"] == "ready")
    manager.stop()
    wait_until(lambda: book.find("cut_off_s"))
    manager.start()
    again = manager.await_worker(lambda e: e["state"] == "ready")
    assert again["pid"] == first["pid"]
    assert len(manager.registrations) == 1
    wait_until(lambda: book.find("cut_off_s")[-1] == 0)


def test_workers_hear_again_and_again_how_long_they_are_cut_off(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    manager.workers = [book.worker()]
    start(config)
    manager.await_worker(lambda e: e["state"] == "ready")
    manager.beat_refusal = (503, "store_unavailable")
    told = wait_until(
        lambda: len(book.find("cut_off_s")) >= 3 and book.find("cut_off_s")
    )
    steps = [later - sooner for sooner, later in itertools.pairwise(told)]
    assert told[0] > manager.beat_s
    assert all(step > 0 for step in steps)


def test_an_agent_cut_off_too_long_stops_its_workers_until_the_manager_is_back(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    manager.workers = [book.worker(deaf=True)]
    start(replace(config, fence_after_s=2.0))
    first = manager.await_worker(lambda e: e["state"] == "ready")
    manager.stop()
    wait_until(lambda: not is_alive(first["pid"]))
    manager.start()
    wait_until(lambda: [row["epoch"] for row in book.find("greeting")] == [1, 2])
    manager.await_worker(lambda e: e["state"] == "ready")


def test_a_beat_that_is_refused_for_a_moment_ends_nothing(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    manager.workers = [book.worker()]
    start(config)
    first = manager.await_worker(lambda e: e["state"] == "ready")
    manager.beat_refusal = (429, "rate_limited")
    manager.wait_for(lambda: manager.refused)
    manager.beat_refusal = None
    assert manager.await_worker(lambda e: True)["pid"] == first["pid"]


def test_an_agent_that_is_stopped_lets_workers_finish_and_takes_leave(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    manager.workers = [book.worker(held=[["t1", 1]], finish_s=1.5)]
    running = start(config)
    manager.await_worker(lambda e: e["state"] == "busy")
    running.agent.stop()
    manager.await_worker(lambda e: e["held"] == [["t1", 1]])
    running.join()
    assert running.error is None
    assert book.find("left") == ["in peace"]
    assert manager.beats[-1]["workers"] == []


def test_a_second_stop_does_not_wait_for_workers(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    manager.workers = [book.worker(deaf=True)]
    patient = replace(config.child, stop_grace_s=300.0)
    running = start(replace(config, child=patient))
    entry = manager.await_worker(lambda e: e["state"] == "ready")
    running.agent.stop()
    running.stop()
    wait_until(lambda: not is_alive(entry["pid"]))


def test_an_agent_tells_the_time_with_its_registration_and_every_beat(
    manager: StandInManager, config: AgentConfig, start: Start
) -> None:
    before = time.time()
    start(config)
    manager.wait_for(lambda: len(manager.beats) >= 2)
    told = [manager.registrations[0], *manager.beats[:2]]
    clocks = [body["clock"] for body in told]
    assert before <= clocks[0] <= clocks[1] <= clocks[2] <= time.time()


def test_an_agent_of_a_version_that_does_not_fit_says_so_once_and_waits(
    manager: StandInManager,
    config: AgentConfig,
    start: Start,
    caplog: pytest.LogCaptureFixture,
) -> None:
    message = "this node has Corral 0.1.0 and the manager 0.9.0"
    manager.register_refusal = (409, "version_refused", message)
    running = start(config)
    manager.wait_for(lambda: manager.refused)
    wait_until(lambda: message in caplog.text)
    running.stop()
    assert running.error is None
    assert (len(manager.refused), caplog.text.count(message)) == (1, 1)
