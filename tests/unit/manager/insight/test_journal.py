"""What the manager remembers of its scheduler: bounded, and as far back as asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from corral.errors import Conflict
from corral.manager.insight.journal import RecordedScheduler, journal_of, scheduler_of
from corral.scheduler.events import OrderClosed, TasksQueued, WaitingTask, WorkerReady
from corral.scheduler.scheduler import Policy, Scheduler

Json = dict[str, Any]


def told(scheduler: RecordedScheduler, since: float = 0.0) -> list[Json]:
    return [json.loads(line) for line in scheduler.journal.lines(since)]


def times(lines: list[Json]) -> list[float]:
    return [line["now"] for line in lines if "plan" in line]


def lived(limit: int, steps: int) -> RecordedScheduler:
    """A plan a second, with a task to place each time."""
    scheduler = RecordedScheduler(Policy(), limit)
    scheduler.apply(WorkerReady("w1", "n1", frozenset(["a"])))
    for number in range(steps):
        task = WaitingTask(f"t{number}", 1, "a", number, arrived=1000.0 + number)
        scheduler.apply(TasksQueued((task,)))
        for order in scheduler.plan(1000.0 + number).orders:
            scheduler.apply(OrderClosed(order.worker_id))
    return scheduler


def test_a_young_journal_begins_with_nothing_known() -> None:
    lines = told(lived(1000, 5))
    assert lines[0]["journal"] == 2
    assert lines[0]["is_whole"] is True
    assert lines[0]["policy"]["strategy"] == "smith"
    assert not any("state" in line for line in lines)
    assert times(lines) == [1000.0, 1001.0, 1002.0, 1003.0, 1004.0]
    assert lines[1]["WorkerReady"]["worker_id"] == "w1"
    assert lines[3]["plan"]["orders"][0]["tasks"][0]["task_id"] == "t0"


def test_the_journal_is_bounded_and_goes_on_from_a_known_state() -> None:
    lines = told(lived(400, 1000))
    steps = [line for line in lines[1:] if "state" not in line]
    assert 300 <= len(steps) <= 520
    assert any("state" in line for line in lines)
    assert lines[0]["is_whole"] is True
    assert times(lines)[-1] == 1999.0


def test_a_large_batch_counts_as_many_events() -> None:
    scheduler = RecordedScheduler(Policy(), 400)
    for start in range(0, 4000, 50):
        tasks = tuple(
            WaitingTask(f"t{n}", 1, "a", n, arrived=1.0)
            for n in range(start, start + 50)
        )
        scheduler.apply(TasksQueued(tasks))
        scheduler.plan(1000.0 + start)
    queued = [
        len(x["TasksQueued"]["tasks"]) for x in told(scheduler) if "TasksQueued" in x
    ]
    assert 300 <= sum(queued) <= 600


def test_only_what_is_asked_for_is_told() -> None:
    scheduler = lived(400, 1000)
    every, last = times(told(scheduler)), times(told(scheduler, since=1990.0))
    assert last[-1] == every[-1] == 1999.0
    assert every[0] < last[0] <= 1990.0
    assert times(told(scheduler, since=5000.0))[-1] == 1999.0


def test_with_too_many_waiting_it_goes_on_from_the_last_known_state() -> None:
    scheduler = RecordedScheduler(Policy(), 400)
    many = tuple(WaitingTask(f"t{n}", 1, "a", n, arrived=1.0) for n in range(6000))
    scheduler.apply(TasksQueued(many))
    for number in range(50):
        scheduler.plan(1000.0 + number)
    lines = told(scheduler, since=1045.0)
    assert lines[0]["is_whole"] is True
    assert not any("state" in line for line in lines)
    assert times(lines)[0] == 1000.0
    for number in range(2000):
        scheduler.plan(1100.0 + number)
    # By now nothing is left that began with a known state.
    lines = told(scheduler)
    assert lines[0]["is_whole"] is False


def test_no_journal_is_kept_when_none_is_wanted() -> None:
    scheduler = scheduler_of(Policy(), 0)
    assert type(scheduler) is Scheduler
    with pytest.raises(Conflict, match="CORRAL_JOURNAL_EVENTS"):
        journal_of(scheduler)
    assert isinstance(scheduler_of(Policy(), 10), RecordedScheduler)
