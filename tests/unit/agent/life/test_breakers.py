"""Workers that keep failing are left alone, tried once, and started when that helps."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as change

from corral.agent.config import AgentConfig
from corral.agent.life.breaker import key_of
from corral.core.nodes.breaker import BreakerPolicy
from corral.wire.agent import DesiredWorker
from tests.unit.agent.conftest import QUICK, Book, Running, wait_until
from tests.unit.agent.standin import StandInManager

Start = Callable[[AgentConfig], Running]
KEY = "corral:EchoWorker"
LONG = BreakerPolicy(failures=3, window_s=60.0, cooldown_s=600.0)
SHORT = BreakerPolicy(failures=3, window_s=60.0, cooldown_s=0.5, longest_s=0.5)
STEADY = replace(QUICK, steady_s=0.2)


@pytest.fixture
def cause(tmp_path: Path) -> Path:
    """While this file is there, workers fail."""
    path = tmp_path / "cause"
    path.touch()
    return path


def breakers(manager: StandInManager) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = manager.beats[-1]["breakers"] if manager.beats else []
    return told


def ready(manager: StandInManager) -> set[str]:
    workers = manager.beats[-1]["workers"]
    return {e["worker_id"] for e in workers if e["state"] == "ready"}


def is_ready(restarts: int, entry: dict[str, Any]) -> bool:
    return (entry["state"], entry["restarts"]) == ("ready", restarts)


def opened(manager: StandInManager) -> dict[str, Any]:
    return manager.await_worker(lambda e: e["breaker"] is not None)


@pytest.mark.spec("C50")
def test_a_worker_that_dies_at_once_opens_the_breaker_after_the_set_number(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start, cause: Path
) -> None:
    manager.workers = [book.worker(die_while=str(cause))]
    start(replace(config, breaker=LONG))
    entry = opened(manager)
    assert (entry["state"], entry["breaker"], entry["pid"]) == ("error", KEY, None)
    assert entry["error"].startswith("breaker open: 3 failures in 60 s, next try in ")
    assert entry["error"].endswith("exit code 3: cannot go on: no module")
    (told,) = manager.wait_for(lambda: breakers(manager))
    assert (told["key"], told["state"], told["failures"]) == (KEY, "open", 3)
    assert 590 < told["next_probe_s"] <= 600
    assert len(book.find("pid")) == 3, "and not one more"


def test_runners_that_cannot_start_open_it_too_and_their_supervisor_is_stopped(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start, cause: Path
) -> None:
    manager.workers = [book.worker(sick_while=str(cause))]
    start(replace(config, breaker=LONG))
    entry = opened(manager)
    assert entry["error"].endswith(": no module")
    wait_until(lambda: book.find("left") == ["in peace"])
    assert len(book.find("pid")) == 1, "the supervisor's own tries were counted"


def test_the_probe_closes_it_after_the_fix_and_the_others_start(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start, cause: Path
) -> None:
    names = ("w1", "w2", "w3")
    manager.workers = [book.worker(n, die_while=str(cause)) for n in names]
    start(replace(config, breaker=SHORT, child=STEADY))
    manager.wait_for(lambda: breakers(manager))
    cause.unlink()
    manager.wait_for(lambda: ready(manager) == set(names))
    manager.wait_for(lambda: breakers(manager) == [])


def test_while_the_probe_is_undecided_no_other_worker_is_started(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start, cause: Path
) -> None:
    names = ("w1", "w2", "w3")
    slow = [book.worker(n, die_while=str(cause), slow=True) for n in names]
    manager.workers = slow
    start(replace(config, breaker=SHORT, child=STEADY))
    manager.wait_for(lambda: breakers(manager))
    cause.unlink()
    told = manager.wait_for(
        lambda: [b for b in breakers(manager) if b["state"] == "half_open"]
    )
    begun = len(manager.beats)
    manager.wait_for(lambda: len(manager.beats) > begun + 5)
    assert breakers(manager)[0]["state"] == told[0]["state"]
    alive = [e for e in manager.beats[-1]["workers"] if e["pid"] is not None]
    assert len(alive) == 1
    assert "it is being tried again" in alive[0]["error"]


def test_what_runs_well_stays_and_other_kinds_are_not_touched(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start, cause: Path
) -> None:
    well, other = book.worker("w1"), {**book.worker("w2"), "worker_class": "my:Other"}
    manager.workers = [well]
    start(replace(config, breaker=LONG))
    first = manager.await_worker(lambda e: e["state"] == "ready")
    manager.desire(well, other, book.worker("w3", die_while=str(cause)))
    assert opened(manager)["worker_id"] == "w3"
    manager.await_worker(lambda e: e["worker_id"] == "w2" and e["state"] == "ready")
    still = manager.await_worker(lambda e: e["worker_id"] == "w1")
    assert (still["pid"], still["state"]) == (first["pid"], "ready")


def test_a_restart_that_is_asked_for_resets_it_even_over_a_new_registration(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start, cause: Path
) -> None:
    sick = book.worker(die_while=str(cause))
    manager.workers = [sick]
    start(replace(config, breaker=LONG))
    opened(manager)
    cause.unlink()
    manager.epoch += 1  # the agent registers again, and its breaker stays open
    manager.wait_for(lambda: len(manager.registrations) == 2)
    opened(manager)
    manager.desire({**sick, "generation": 1})
    manager.await_worker(lambda e: e["state"] == "ready")
    manager.wait_for(lambda: breakers(manager) == [])


def test_deaths_of_a_worker_that_does_its_work_do_not_count(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    manager.workers = [book.worker(finished=1)]
    start(replace(config, breaker=LONG))
    for deaths in range(LONG.failures + 1):
        entry = manager.await_worker(partial(is_ready, deaths))
        os.kill(entry["pid"], signal.SIGKILL)
    manager.await_worker(partial(is_ready, LONG.failures + 1))
    assert breakers(manager) == []


def test_an_idle_agent_stops_at_once_while_a_breaker_is_open(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start, cause: Path
) -> None:
    manager.workers = [book.worker(die_while=str(cause))]
    running = start(replace(config, breaker=LONG))
    opened(manager)
    running.stop()


def test_workers_share_a_breaker_by_type_else_by_class_and_environment() -> None:
    plain = DesiredWorker(worker_id="w1", worker_class="my:Worker")
    git = change(plain, environment={"git": "https://host/a"})
    other = change(plain, environment={"git": "https://host/b"})
    assert key_of(plain) == "my:Worker"
    assert key_of(git).startswith("my:Worker@")
    assert len({key_of(plain), key_of(git), key_of(other)}) == 3
    assert key_of(change(git, worker_type="detector")) == "detector"
