"""Why a task waits and what would start it: each situation, its reason, its change.

Every change that is told is then made, and the task must start by it.
"""

from __future__ import annotations

import pytest

from corral.core.access.share import Share
from corral.core.nodes.labels import Constraint
from corral.scheduler.events import (
    AttemptEnded,
    DependencyMet,
    MemoryChanged,
    ModelKnown,
    NodeHeld,
    NodeMarked,
    OrderClosed,
    ShareSet,
    TasksRan,
    TypePaused,
    WorkerAway,
    WorkerBroken,
    WorkerReady,
)
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


def test_no_worker_of_that_type() -> None:
    made = scheduler(WorkerReady("w1", "n1", B), queued())
    found, change = waits(made, "no_worker", "worker")
    assert change.message == "start a worker for 'a'"
    assert change.command == "corral worker launch CLASS --job-type a"
    assert verdicts(found) == {"w1": "type"}
    made.apply(WorkerReady("w2", "n1", A))
    assert starts(made) == "w2"


def test_its_model_is_too_large_for_every_worker() -> None:
    made = scheduler(
        ModelKnown("big", 9 * 1024.0, 10.0),
        WorkerReady("w1", "n1", A, memory_mb=6.9 * 1024),
        WorkerReady("w2", "n2", A, memory_mb=4 * 1024.0),
        queued(model="big"),
    )
    found, change = waits(made, "model_too_large", "more_memory")
    assert change.message == (
        "needs 2.1 GiB more: give w1 9.0 GiB for models; would start on w1"
    )
    assert change.details["short_mb"] == pytest.approx(2.1 * 1024)
    assert verdicts(found) == {"w1": "model_too_large", "w2": "model_too_large"}
    made.apply(MemoryChanged("w1", 9 * 1024.0))
    assert starts(made) == "w1"


def test_all_workers_are_busy() -> None:
    made = scheduler(WorkerReady("w1", "n1", A), TasksRan("a", "w1", 4, 80.0))
    made.apply(queued("41", 1))
    assert starts(made, task_id="41") == "w1"
    made.apply(queued())
    found, change = waits(made, "workers_busy", "wait", NOW + 5)
    assert change.message.startswith("would start on w1 when task 41 ends, in about ")
    assert change.details["tasks"] == ["41"]
    assert (found.ahead, found.line) == (0, 1)
    assert found.start is not None
    assert NOW + 5 <= found.start.low <= found.start.at <= found.start.high
    assert change.in_s == pytest.approx(found.start.at - NOW - 5)
    assert found.run_s == pytest.approx(20.0)
    (candidate,) = found.candidates
    assert candidate.verdict == "busy"
    assert candidate.terms is not None
    assert candidate.terms.wait_s == pytest.approx(15.0)
    assert candidate.terms.total_s == pytest.approx(35.0)
    made.apply(OrderClosed("w1"))
    assert starts(made, NOW + 20) == "w1"


def test_its_turn_comes_after_others() -> None:
    made = scheduler(WorkerReady("w1", "n1", A))
    for number in range(3):
        made.apply(queued(f"t{number}", number))
    made.apply(queued())
    found, change = waits(made, "workers_busy", "wait")
    assert found.ahead == change.details["ahead"] == 2
    assert change.message.startswith("its turn comes after 2 other task(s)")
    assert found.changes[1].message == "start another worker for 'a'"


def test_the_circuit_of_its_worker_is_open() -> None:
    broken = WorkerBroken("w1", A, "breaker open: no file", "breaker_open", "n1")
    made = scheduler(broken, queued())
    found, change = waits(made, "breaker_open", "reset_breaker")
    assert "no file" in change.message
    assert change.command == "corral breaker reset n1"
    assert verdicts(found) == {"w1": "breaker_open"}
    made.apply(WorkerReady("w1", "n1", A))
    assert starts(made) == "w1"


@pytest.mark.parametrize("is_raised", [True, False])
def test_the_quota_of_its_share_is_used_up(is_raised: bool) -> None:
    made = scheduler(
        ShareSet(Share("owner=ann", max_running=1)),
        WorkerReady("w1", "n1", A),
        WorkerReady("w2", "n1", A),
        queued("41", 1, owner="ann"),
        queued(owner="ann"),
        queued("other", 10, owner="bob"),
    )
    assert starts(made, task_id="other") is not None
    _, change = waits(made, "quota", "quota")
    assert "raise the quota of owner=ann from 1" in change.message
    assert "until task 41 ends" in change.message
    assert change.details["max_running"] == 1
    made.apply(OrderClosed("w2"))
    if is_raised:
        made.apply(ShareSet(Share("owner=ann", max_running=2)))
    else:
        made.apply(AttemptEnded("41"))
    assert starts(made) is not None


def test_it_needs_a_task_that_has_not_completed() -> None:
    made = scheduler(WorkerReady("w1", "n1", A), queued(needs=frozenset({"x"})))
    found, change = waits(made, "dependencies", "dependencies")
    assert change.message == "starts when task(s) x have completed"
    assert change.details["depends_on"] == ["x"]
    assert verdicts(found) == {"w1": "free"}
    made.apply(DependencyMet("x"))
    assert starts(made) == "w1"


def test_the_node_of_its_workers_is_drained() -> None:
    made = scheduler(
        WorkerReady("w1", "n1", A),
        NodeHeld("n1", "kernel update"),
        WorkerAway("w2", "n1", A),
        queued(),
    )
    found, change = waits(made, "node_held", "uncordon")
    assert change.message.startswith("uncordon node n1 (kernel update)")
    assert change.command == "corral uncordon n1"
    assert verdicts(found) == {"w1": "node_held", "w2": "node_held"}
    made.apply(NodeHeld("n1", None))
    assert starts(made) == "w1"


def test_no_node_has_the_labels_it_asks_for() -> None:
    wanted = Constraint((("rack", "a"),))
    made = scheduler(
        WorkerReady("w1", "n3", A),
        NodeMarked("n3", {"rack": "b"}, frozenset()),
        queued(constraint=wanted),
    )
    found, change = waits(made, "node_labels", "label")
    assert change.message.startswith(
        "add label rack=a to node n3 or drop it from the task"
    )
    assert change.command == "corral label n3 rack=a"
    assert verdicts(found) == {"w1": "node_labels"}
    made.apply(NodeMarked("n3", {"rack": "a"}, frozenset()))
    assert starts(made) == "w1"


def test_a_foreign_process_uses_the_memory_it_needs() -> None:
    made = scheduler(
        ModelKnown("m", 6 * 1024.0, 10.0),
        WorkerReady("w1", "n1", A, memory_mb=8 * 1024.0),
        MemoryChanged("w1", 3 * 1024.0, others_mb=5 * 1024.0),
        queued(model="m"),
    )
    found, change = waits(made, "foreign_memory", "free_memory")
    assert change.message.startswith("needs 3.0 GiB more: free it of the 5.0 GiB")
    assert change.details["worker_id"] == "w1"
    assert verdicts(found) == {"w1": "foreign_memory"}
    made.apply(MemoryChanged("w1", 6 * 1024.0, others_mb=2 * 1024.0))
    assert starts(made) == "w1"


def test_its_deadline_has_passed() -> None:
    made = scheduler(WorkerReady("w1", "n1", A), TasksRan("a", "w1", 4, 80.0))
    made.apply(queued("41", 1))
    assert starts(made, task_id="41") == "w1"
    made.apply(queued(deadline=NOW + 5))
    found = explained(made)
    assert found.changes[-1].kind == "deadline"
    assert "its deadline is in 5 s, before its turn" in found.changes[-1].message
    assert [t.task_id for t in made.plan(NOW + 6).expired] == ["t"]
    found, change = waits(made, "deadline_passed", "deadline", NOW + 6)
    assert found.reason is not None
    assert "deadline passed before it could start; all 1 worker(s)" in (
        found.reason.message
    )
    assert change.details["expected_wait_s"] == pytest.approx(14.0)
    assert change.message.endswith("14 s from then")
    made.apply(queued(deadline=NOW + 26))
    made.apply(OrderClosed("w1"))
    assert starts(made, NOW + 20) == "w1"


def test_its_time_has_not_come() -> None:
    made = scheduler(WorkerReady("w1", "n1", A), queued(run_after=NOW + 42))
    found, change = waits(made, "not_before", "run_after")
    assert change.message == "in 42 s, or now without run_after"
    assert change.in_s == 42.0
    assert found.start is not None
    assert found.start.at == NOW + 42
    assert starts(made, NOW + 42) == "w1"


def test_its_job_type_is_paused() -> None:
    made = scheduler(WorkerReady("w1", "n1", A), TypePaused("a", True), queued())
    found, change = waits(made, "type_paused", "resume_type")
    assert change.message == "resume job type 'a'"
    assert change.command == "corral job-type resume a"
    assert found.start is None
    made.apply(TypePaused("a", False))
    assert starts(made) == "w1"
