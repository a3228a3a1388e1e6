"""What the agent does about workers that die, hang, change or must go."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace

import pytest

from corral.agent.config import AgentConfig
from tests.unit.agent.conftest import Book, Running, is_alive, wait_until
from tests.unit.agent.standin import NODE, StandInManager

Start = Callable[[AgentConfig], Running]


def test_a_desired_worker_is_started_with_all_it_needs_to_know(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    manager.workers = [book.worker()]
    start(config)
    entry = manager.await_worker(lambda e: e["state"] == "ready")
    greeting = book.find("greeting")[0]
    assert (greeting["worker_id"], greeting["node_id"]) == ("w1", NODE)
    assert (greeting["manager_url"], greeting["key"]) == (manager.url, manager.key)
    assert greeting["epoch"] == 1
    assert greeting["redis_url"].startswith("redis+socket://")
    assert greeting["spec"]["worker_class"] == "corral:EchoWorker"
    assert entry["pid"] == book.find("pid")[0]
    assert entry["incarnation"]


@pytest.mark.spec("D24")
def test_the_log_of_all_workers_is_named_to_each_and_kept_small(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    shared = config.home / "logs" / "worker.log"
    shared.parent.mkdir(parents=True, exist_ok=True)
    shared.write_text("a line\n" * 100)
    policy = replace(config.child, log_limit_bytes=500)
    manager.workers = [book.worker()]
    start(replace(config, child=policy, log_format="json"))
    manager.await_worker(lambda e: e["state"] == "ready")
    greeting = book.find("greeting")[0]
    assert (greeting["log_file"], greeting["log_format"]) == (str(shared), "json")
    wait_until(lambda: shared.stat().st_size == 0)
    assert shared.with_name("worker.log.1").read_text() == "a line\n" * 100


def test_a_worker_inherits_no_secret_of_the_agent(
    manager: StandInManager,
    config: AgentConfig,
    book: Book,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CORRAL_JOIN_TOKEN", "s3cret")
    monkeypatch.setenv("CORRAL_DATABASE_URL", "s3cret")
    manager.workers = [book.worker()]
    start(config)
    manager.await_worker(lambda e: e["state"] == "ready")
    assert "s3cret" not in book.find("env")[0].values()


def test_a_killed_supervisor_is_told_at_once_and_started_again(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    manager.beat_s = 300.0
    manager.workers = [book.worker(held=[["t1", 1]])]
    start(config)
    first = manager.await_worker(lambda e: e["state"] == "busy")
    os.kill(first["pid"], signal.SIGKILL)
    lost = manager.await_worker(lambda e: e["state"] == "lost")
    assert (lost["incarnation"], lost["pid"]) == (first["incarnation"], None)
    assert lost["held"] == []
    assert "signal 9" in lost["error"]
    again = manager.await_worker(lambda e: e["state"] == "busy")
    assert again["incarnation"] != first["incarnation"]
    assert (again["restarts"], again["error"]) == (1, None)


def test_what_a_killed_supervisor_started_does_not_outlive_it(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    manager.workers = [book.worker(kin=True)]
    start(config)
    entry = manager.await_worker(lambda e: e["state"] == "ready")
    kin = book.find("kin")[0]
    assert is_alive(kin)
    os.kill(entry["pid"], signal.SIGKILL)
    wait_until(lambda: not is_alive(kin))


@pytest.mark.spec("C49")
def test_restarts_come_later_and_later_and_say_why(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    policy = replace(config.child, longest_delay_s=10.0, deaths_to_error=3)
    manager.workers = [book.worker(die="no such class")]
    start(replace(config, child=policy))
    broken = manager.await_worker(lambda e: e["state"] == "error")
    assert broken["error"].endswith("exit code 3: cannot go on: no such class")
    assert broken["restarts"] >= 3
    starts = len(book.find("pid"))
    assert starts == broken["restarts"]


def test_a_supervisor_that_says_nothing_is_replaced(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    policy = replace(config.child, silent_after_s=0.5)
    manager.workers = [book.worker(mute=True)]
    start(replace(config, child=policy))
    first = manager.await_worker(lambda e: e["state"] == "ready")
    manager.await_worker(lambda e: e["restarts"] >= 1)
    wait_until(lambda: not is_alive(first["pid"]))


def test_a_worker_no_longer_desired_finishes_and_leaves(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    manager.workers = [book.worker("w1"), book.worker("w2")]
    start(config)
    manager.await_worker(lambda e: e["worker_id"] == "w1" and e["state"] == "ready")
    manager.desire(book.worker("w2"))
    manager.wait_for(lambda: [e["worker_id"] for e in last(manager)] == ["w2"])
    assert book.find("left", "w1") == ["in peace"]


def test_a_worker_that_does_not_leave_in_its_grace_is_killed(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    policy = replace(config.child, stop_grace_s=0.3)
    manager.workers = [book.worker(deaf=True, kin=True)]
    start(replace(config, child=policy))
    entry = manager.await_worker(lambda e: e["state"] == "ready")
    manager.desire()
    manager.wait_for(lambda: last(manager) == [])
    wait_until(lambda: not is_alive(entry["pid"]))
    wait_until(lambda: not is_alive(book.find("kin")[0]))


def test_a_changed_worker_starts_only_after_its_former_self_has_left(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    manager.workers = [book.worker(finish_s=0.5)]
    start(config)
    manager.await_worker(lambda e: e["state"] == "ready")
    changed = {**book.worker(), "concurrency": 2}
    manager.desire(changed)
    wait_until(lambda: len(book.find("greeting")) == 2)
    kinds = [next(iter(row)) for row in book.rows()]
    # On a slow machine it also hears that the manager was silent for a while.
    kinds = [kind for kind in kinds if kind in ("greeting", "left")]
    assert kinds == ["greeting", "left", "greeting"]
    assert book.find("greeting")[1]["spec"]["concurrency"] == 2


def last(manager: StandInManager) -> list[dict[str, object]]:
    workers: list[dict[str, object]] = manager.beats[-1]["workers"]
    return workers
