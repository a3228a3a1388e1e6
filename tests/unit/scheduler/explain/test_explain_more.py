"""Explanations beyond the usual: several obstacles, models, placed tasks, many."""

from __future__ import annotations

import pytest

from corral.core.access.share import Share
from corral.scheduler.events import (
    ModelKnown,
    ModelsPinned,
    NodeHeld,
    NodeMarked,
    OrderClosed,
    Paused,
    SchedulerEvent,
    ShareSet,
    TasksRan,
    WorkerReady,
)
from corral.scheduler.scheduler import Scheduler
from tests.unit.scheduler.explained import (
    NOW,
    A,
    B,
    explained,
    queued,
    scheduler,
    starts,
    verdicts,
    waits,
)


def test_taints_keep_it_away() -> None:
    made = scheduler(
        WorkerReady("w1", "n1", A), NodeMarked("n1", {}, frozenset({"spot"})), queued()
    )
    _, change = waits(made, "taints", "tolerate")
    assert "let the task tolerate spot or take it off node n1" in change.message
    assert change.command == "corral taint n1 spot-"
    made.apply(NodeMarked("n1", {}, frozenset()))
    assert starts(made) == "w1"


def test_two_things_keep_it_away_and_both_are_told() -> None:
    made = scheduler(
        WorkerReady("w1", "n1", A),
        NodeMarked("n1", {}, frozenset({"spot"})),
        NodeHeld("n1", "cables"),
        queued(),
    )
    assert starts(made) is None
    change = explained(made).changes[0]
    assert change.message.startswith(
        "let the task tolerate spot or take it off node n1 and uncordon node n1"
    )
    assert change.command == "corral taint n1 spot- && corral uncordon n1"


def test_the_cluster_is_draining_and_then_nobody_serves_it() -> None:
    made = scheduler(Paused(True), queued())
    _, change = waits(made, "draining", "resume")
    assert "then no worker serves 'a'" in change.message
    assert change.details["then"] == "no_worker"


def test_one_that_has_its_model_will_be_faster() -> None:
    made = scheduler(
        ModelKnown("m", 1024.0, 60.0),
        ModelKnown("n", 1024.0, 1.0),
        WorkerReady("w1", "n1", A, memory_mb=1024.0, models=frozenset({"m"})),
        TasksRan("a", "w1", 4, 20.0, "m"),
        queued("41", 1, model="m"),
    )
    assert starts(made, task_id="41") == "w1"
    made.apply(WorkerReady("w2", "n2", A, memory_mb=1024.0))
    made.apply(queued(model="m"))
    found, change = waits(made, "waits_for_holder", "wait")
    assert change.message.startswith("would start on w1 when task 41 ends")
    assert verdicts(found) == {"w1": "busy", "w2": "waits_for_holder"}
    assert found.reason is not None
    assert found.reason.details["holder"] == "w1"
    by_id = {c.worker_id: c.terms for c in found.candidates}
    assert by_id["w2"] is not None
    assert by_id["w2"].load_s == 60.0
    assert starts(made, NOW + 5) is None
    made.apply(OrderClosed("w1"))
    assert starts(made, NOW + 5) == "w1"


def test_pinned_models_leave_no_room() -> None:
    made = scheduler(
        ModelKnown("m", 1024.0, 5.0),
        ModelKnown("p", 1024.0, 5.0),
        ModelKnown("q", 512.0, 5.0),
        WorkerReady("w1", "n1", A, memory_mb=2048.0, models=frozenset({"p", "q"})),
        ModelsPinned("w1", frozenset({"p", "q"})),
        queued(model="m"),
    )
    found, change = waits(made, "pinned_models", "unpin")
    assert change.message.startswith("needs 0.5 GiB more: unpin p on w1")
    assert change.command == "corral models unpin p w1"
    assert verdicts(found) == {"w1": "pinned_models"}
    made.apply(ModelsPinned("w1", frozenset({"q"})))
    assert starts(made) == "w1"


def test_a_placed_task_says_why_it_went_there() -> None:
    made = scheduler(
        ModelKnown("m", 1024.0, 60.0),
        ModelKnown("old", 1024.0, 6.0),
        WorkerReady("w1", "n1", A, memory_mb=1024.0, models=frozenset({"old"})),
        TasksRan("a", "w1", 4, 20.0, "m"),
        queued("first", 1, model="m"),
    )
    assert starts(made, task_id="first") == "w1"
    first = explained(made, NOW + 1, "first")
    assert first.reason is None
    placed = first.placement
    assert placed is not None
    assert (placed.at, placed.worker_id, placed.node_id) == (NOW, "w1", "n1")
    assert (placed.load, placed.unload) == ("m", ("old",))
    assert placed.message.endswith("it loads 'm' first (60.0 s) and drops 'old' for it")
    assert placed.terms.load_s == 60.0
    assert placed.terms.run_s == pytest.approx(5.0)
    made.apply(OrderClosed("w1"))
    made.apply(queued(model="m"))
    assert starts(made, NOW + 70) == "w1"
    second = explained(made, NOW + 71).placement
    assert second is not None
    assert second.message.endswith("was free and had 'm' in memory")
    assert second.load is None


def test_workers_that_were_asked_before_are_remembered() -> None:
    made = scheduler(
        ModelKnown("m", 4096.0, 60.0),
        ModelKnown("p", 4096.0, 5.0),
        WorkerReady("w1", "n1", A, memory_mb=4096.0, models=frozenset({"p"}), speed=2),
        ModelsPinned("w1", frozenset({"p"})),
        WorkerReady("w2", "n1", A, memory_mb=4096.0),
    )
    made.plan(NOW)
    made.apply(queued(model="m"))
    assert starts(made) == "w2"
    placed = explained(made).placement
    assert placed is not None
    assert placed.passed_over == ("w1",)


def test_of_very_many_workers_the_likeliest_are_told() -> None:
    made = scheduler(ModelKnown("m", 1024.0, 60.0))
    for number in range(100):
        models = frozenset({"m"} if number == 50 else ())
        kind = A if number == 50 or number > 90 else B
        made.apply(WorkerReady(f"w{number:02}", "n1", kind, models=models))
    made.apply(NodeHeld("n1", "cables"))
    made.apply(queued(model="m"))
    found = made.explain("t", NOW, 12)
    assert found is not None
    assert (len(found.candidates), found.workers) == (12, 100)
    near = [f"w{n}" for n in (50, *range(91, 100))]
    assert [c.worker_id for c in found.candidates][:10] == near
    every = made.explain("t", NOW)
    assert every is not None
    assert len(every.candidates) == 100


def test_of_an_unknown_task_nothing_is_said() -> None:
    assert Scheduler().explain("t", NOW) is None


def test_explaining_changes_no_decision() -> None:
    def events() -> list[SchedulerEvent]:
        ready = [WorkerReady(f"w{n}", f"n{n}", A, memory_mb=2048.0) for n in range(3)]
        known = [ModelKnown(f"m{n}", 1024.0, 5.0 + n) for n in range(5)]
        tasks = [queued(f"t{n}", n, model=f"m{n % 5}", owner="x") for n in range(30)]
        return [ShareSet(Share("owner=x", max_running=2)), *known, *ready, *tasks]

    silent, asked = Scheduler(), Scheduler()
    for step, event in enumerate(events()):
        silent.apply(event)
        asked.apply(event)
        now = NOW + step
        assert asked.plan(now) == silent.plan(now)
        for number in range(30):
            asked.explain(f"t{number}", now)
            asked.expect(f"t{number}", now)
            asked.why(f"t{number}", now)
        if step % 3 == 0:
            for one in (silent, asked):
                one.apply(OrderClosed(f"w{step % 2}"))
