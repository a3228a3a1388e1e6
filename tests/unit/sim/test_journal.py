"""Journals: the same decisions again, whatever happened and wherever they begin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.core.nodes.labels import Constraint
from corral.core.tasks.job_type import QueueOrder
from corral.errors import InvalidField
from corral.manager.insight.journal import RecordedScheduler
from corral.scheduler.events import (
    DependencyMet,
    ModelKnown,
    ModelsHeld,
    NodeHeld,
    NodeMarked,
    OrderClosed,
    Paused,
    SchedulerEvent,
    TasksGone,
    TasksQueued,
    TasksRan,
    TypeBatched,
    TypeOrdered,
    TypesServed,
    WaitingTask,
    WorkerBroken,
    WorkerGone,
    WorkerReady,
)
from corral.scheduler.scheduler import Policy
from corral.sim.history import from_journal
from corral.sim.journal import Planned, check, read_journal
from corral.sim.machine import Machine, failing, parse_fleet
from corral.sim.scenario import POLICIES
from corral.sim.simulation import Simulation
from corral.sim.workload import synthetic
from tests.property_examples import examples

NAMES = st.sampled_from(["w1", "w2", "w3"])
NODES = st.sampled_from(["n1", "n2"])
TYPES = st.sampled_from(["a", "b"])
MODELS = st.sampled_from(["m1", "m2", "m3"])
IDS = st.integers(1, 30).map("t{}".format)
TIMES = st.floats(0.001, 100.0)
SOME_TYPES = st.frozensets(TYPES, min_size=1)

tasks = st.builds(
    WaitingTask,
    task_id=IDS,
    attempt=st.integers(1, 2),
    job_type=TYPES,
    seq=st.integers(1, 1000),
    priority=st.sampled_from([0, 0, 5, 100]),
    run_after=st.sampled_from([0.0, 0.0, 1050.5]),
    deadline=st.sampled_from([None, None, 1100.25]),
    needs=st.frozensets(IDS, max_size=1),
    worker_id=st.sampled_from([None, None, None, "w1"]),
    constraint=st.sampled_from([None, None, Constraint((("rack", "a"),))]),
    model=st.none() | MODELS,
    arrived=st.floats(990.0, 1000.0),
    units=st.integers(0, 3),
)
ready = st.builds(
    WorkerReady,
    worker_id=NAMES,
    node_id=NODES,
    job_types=SOME_TYPES,
    slots=st.integers(1, 2),
    speed=st.sampled_from([0.6, 1.0, 1.5]),
    memory_mb=st.none() | st.sampled_from([8000.0, 20_000.0]),
    models=st.frozensets(MODELS, max_size=1),
)
events: st.SearchStrategy[SchedulerEvent] = st.one_of(
    st.builds(TasksQueued, st.lists(tasks, min_size=1, max_size=4).map(tuple)),
    ready,
    st.builds(TasksGone, st.tuples(IDS)),
    st.builds(DependencyMet, IDS),
    st.builds(WorkerGone, NAMES),
    st.builds(WorkerBroken, NAMES, SOME_TYPES, st.just("broken")),
    st.builds(NodeHeld, NODES, st.sampled_from([None, "cordoned"])),
    st.builds(
        NodeMarked, NODES, st.sampled_from([{}, {"rack": "a"}]), st.just(frozenset())
    ),
    st.builds(OrderClosed, NAMES),
    st.builds(TasksRan, TYPES, NAMES, st.integers(1, 3), TIMES, st.none() | MODELS),
    st.builds(Paused, st.booleans()),
    st.builds(TypeOrdered, TYPES, st.sampled_from(list(QueueOrder))),
    st.builds(TypeBatched, TYPES, st.none() | st.integers(1, 4)),
    st.builds(TypesServed, NAMES, SOME_TYPES),
    st.builds(ModelKnown, MODELS, st.sampled_from([6000.0, 9000.0]), TIMES),
    st.builds(ModelsHeld, NAMES, st.frozensets(MODELS, max_size=2)),
)
steps = st.lists(events | st.floats(0.0, 30.0), max_size=80)


@settings(max_examples=examples(80), deadline=None)
@given(steps=steps, strategy=st.sampled_from(POLICIES), limit=st.sampled_from([8, 999]))
def test_any_history_replayed_gives_the_same_decisions(
    steps: list[SchedulerEvent | float], strategy: str, limit: int
) -> None:
    scheduler = RecordedScheduler(Policy(strategy=strategy), limit)
    now, last = 1000.0, None
    for step in steps:
        if isinstance(step, float):
            now += step
            last = scheduler.plan(now, can_send=step != 0.0)
            # Questions change nothing.
            for number in range(1, 31):
                scheduler.why(f"t{number}", now)
        else:
            scheduler.apply(step)
    journal = read_journal(scheduler.journal.lines(0.0))
    found = check(journal)
    assert found.difference is None
    planned = [step.plan for step in journal.steps if isinstance(step, Planned)]
    if last is not None and planned:
        assert planned[-1] == last


@cache
def recorded(limit: int = 100_000, strategy: str = "smith") -> RecordedScheduler:
    """A journal of a day with failures, to be read only."""
    scheduler = RecordedScheduler(Policy(strategy=strategy), limit)
    work = synthetic(3, tasks=300)
    fleet = failing(parse_fleet("3x24GB,1x48GB@1.5"), work.span_s, 60.0)
    Simulation(work, fleet, scheduler=scheduler).run()
    return scheduler


@pytest.mark.parametrize("strategy", POLICIES)
def test_a_journal_that_begins_in_the_middle_is_decided_again(strategy: str) -> None:
    journal = read_journal(recorded(300, strategy).journal.lines(0.0))
    assert journal.state
    found = check(journal)
    assert found.difference is None
    assert found.orders > 20


def test_a_changed_decision_is_found() -> None:
    lines = list(recorded().journal.lines(0.0))
    for number, line in enumerate(lines):
        told = json.loads(line)
        if told.get("plan", {}).get("orders"):
            told["plan"]["orders"][0]["worker_id"] = "w999"
            lines[number] = json.dumps(told).encode()
            break
    found = check(read_journal(lines)).difference
    assert found is not None
    assert found.line == number + 1
    assert (
        found.recorded.orders[0].worker_id == "w999" != found.made.orders[0].worker_id
    )


@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_same_decisions_are_made_in_other_processes(
    seed: str, tmp_path: Path
) -> None:
    file = tmp_path / "j.jsonl"
    file.write_bytes(b"".join(recorded(600).journal.lines(0.0)))
    command = [sys.executable, "-m", "corral", "simulate", "--journal", str(file)]
    ran = subprocess.run(
        [*command, "--check"],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "the same decisions, bit for bit" in ran.stdout


def test_a_journal_without_its_beginning_is_not_checked() -> None:
    lines = list(recorded().journal.lines(0.0))
    head = json.loads(lines[0])
    lines[0] = json.dumps({**head, "is_whole": False}).encode()
    with pytest.raises(InvalidField, match="begins in the middle"):
        check(read_journal(lines))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "no journal of format 2"),
        (b'{"journal": 1}', "no journal of format 2"),
        (b"[]", "line 1 is no line"),
        (b"no json", "line 1 is no line"),
        (b'{"journal": 2, "version": "1", "policy": {}}', "line 1 is no line"),
    ],
)
def test_what_is_no_journal_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(InvalidField, match=words):
        read_journal(text.splitlines())


@pytest.mark.parametrize("line", [b'{"Nothing": {}}', b"{}", b'{"OrderClosed": {}}'])
def test_a_line_that_says_nothing_is_refused_with_its_number(line: bytes) -> None:
    lines = [*list(recorded().journal.lines(0.0))[:5], line]
    with pytest.raises(InvalidField, match="line 6 is no line"):
        read_journal(lines)


def test_a_forged_state_is_refused() -> None:
    lines = list(recorded(300).journal.lines(0.0))
    lines[1] = b'{"state": ["builtins:eval", {}]}'
    with pytest.raises(InvalidField, match="no snapshot"):
        check(read_journal(lines))


def test_history_has_the_tasks_times_and_workers_of_what_was_recorded() -> None:
    work = synthetic(3, tasks=300)
    found, machines = from_journal(read_journal(recorded().journal.lines(0.0)))
    assert len(found.arrivals) == 300
    real = {a.task.task_id: a for a in work.arrivals}
    for arrival in found.arrivals:
        other = real[arrival.task.task_id]
        assert arrival.run_s == pytest.approx(other.run_s)
        assert arrival.at == pytest.approx(other.at, abs=0.001)
        assert arrival.task.model == other.task.model
    wanted = {arrival.task.model for arrival in found.arrivals}
    assert (
        wanted
        <= {model.name for model in found.models}
        <= {model.name for model in work.models}
    )
    assert [(m.memory_mb, m.speed) for m in machines] == [
        *[(24576.0, 1.0)] * 3,
        (49152.0, 1.5),
    ]
    for machine in machines:
        ((down, up),) = machine.outages
        assert up - down == pytest.approx(60.0, abs=0.001)


def test_history_simulated_again_takes_as_long_as_it_took() -> None:
    scheduler = RecordedScheduler(Policy(), 100_000)
    work = synthetic(6, tasks=300)
    first = Simulation(work, parse_fleet("3x24GB"), scheduler=scheduler).run()
    found, machines = from_journal(read_journal(scheduler.journal.lines(0.0)))
    again = Simulation(found, machines, Policy()).run()
    assert again.ended_s == pytest.approx(first.ended_s, abs=0.01)


def test_what_waited_when_the_journal_began_is_in_its_history() -> None:
    journal = read_journal(recorded(300).journal.lines(0.0))
    found, machines = from_journal(journal)
    assert journal.scheduler().waiting_count() > 0
    assert {t.task_id for t in journal.scheduler().waiting()} <= {
        a.task.task_id for a in found.arrivals
    }
    assert len(machines) == 4
    record = Simulation(found, [replace(m, outages=()) for m in machines]).run()
    assert record.left == 0


def test_a_journal_of_nothing_has_no_history() -> None:
    empty = RecordedScheduler(Policy(), 100)
    with pytest.raises(InvalidField, match="nothing happened"):
        from_journal(read_journal(empty.journal.lines(0.0)))


def test_a_worker_that_came_later_was_not_there_before() -> None:
    scheduler = RecordedScheduler(Policy(), 100)
    task = WaitingTask("t1", 1, "a", 1, arrived=1000.0)
    scheduler.apply(WorkerReady("w1", "n", frozenset(["a"])))
    scheduler.apply(TasksQueued((task,)))
    scheduler.plan(1000.0)
    scheduler.plan(1030.0)
    scheduler.apply(WorkerReady("w2", "n", frozenset(["a"])))
    scheduler.apply(WorkerGone("w1"))
    scheduler.plan(1031.0)
    _, machines = from_journal(read_journal(scheduler.journal.lines(0.0)))
    first, second = machines
    types = frozenset(["a"])
    down = ((31.0, float("inf")),)
    assert first == Machine("w1", job_types=types, node_id="n", outages=down)
    assert second.outages == ((0.0, 31.0),)
