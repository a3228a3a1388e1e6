"""Spans of tasks: in order and within each other, whatever clocks say."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from corral.core.insight.trace_spans import (
    AttemptHistory,
    ended,
    is_sampled,
    light,
    spans_of,
    trace_id_of,
)
from corral.core.tasks.outcome import Outcome, OutcomeKind, RetryPolicy, settle
from corral.core.tasks.task import State, Task, TaskSpec

START = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = TaskSpec("0198c0de-1111-7222-8333-444455556666", "echo", "{}", retries=1)
TASK = Task(SPEC, State.QUEUED, START).given_to(
    "w", "i", "n", START + timedelta(seconds=2)
)
seconds = st.floats(0, 100, allow_nan=False)


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


@given(
    started=st.none() | st.floats(-50, 150),
    duration=seconds,
    load=seconds,
    end=st.floats(2, 100),
    kind=st.sampled_from(OutcomeKind),
    before=st.none() | seconds,
)
def test_spans_follow_each_other_within_their_task_whatever_a_worker_says(
    started: float | None,
    duration: float,
    load: float,
    end: float,
    kind: OutcomeKind,
    before: float | None,
) -> None:
    began = None if started is None else at(started)
    said = Outcome(TASK.id, 1, kind, started_at=began, duration_s=duration, load_s=load)
    row = settle(TASK, said, at(end), RetryPolicy(), 0.5)
    past = None if before is None else AttemptHistory(START, at(before))
    *parts, root = spans_of(ended(TASK, replace(row, state=State.FAILED), past))
    assert root.begin == START
    assert root.end == at(end)
    time = root.begin
    for span in parts:
        assert time <= span.begin <= span.end <= root.end
        assert span.parent_id == root.id
        assert all(span.begin <= each.at <= span.end for each in span.moments)
        time = span.end
    names = [span.name for span in parts]
    loads = ["load"] if load and began else []
    assert names == ["queue", *loads, *(["run"] if began else [])]


def test_what_a_former_manager_knew_is_left_out_and_not_made_up() -> None:
    again = replace(TASK, attempt=2, tries=1)
    said = Outcome(again.id, 2, OutcomeKind.COMPLETED, started_at=at(3), duration_s=1)
    row = settle(again, said, at(5), RetryPolicy(), 0.5)
    queue, run, root = spans_of(ended(again, row, None))
    assert (queue.begin, queue.end, run.begin) == (at(2), at(3), at(3))
    assert (root.begin, root.end) == (START, at(5))
    later = replace(again, run=2)
    assert spans_of(ended(later, row, None))[-1].begin == at(2)


def test_a_share_of_tasks_is_sampled_and_each_task_always_or_never() -> None:
    tasks = [
        replace(TASK, spec=replace(SPEC, id=f"task-{number}")) for number in range(2000)
    ]
    chosen = [task for task in tasks if is_sampled(task, 0.25)]
    assert 400 < len(chosen) < 600
    assert [task for task in tasks if is_sampled(task, 0.25)] == chosen
    assert len({trace_id_of(task) for task in tasks}) == 2000
    assert not [task for task in tasks if is_sampled(task, 0.0)]


def test_what_waits_to_be_sent_holds_no_payload_and_no_result() -> None:
    large = replace(TASK, spec=replace(SPEC, payload="x" * 10_000), result="y")
    kept = light(large)
    assert (kept.spec.payload, kept.result) == ("", None)
    assert replace(kept, spec=large.spec, result="y") == large
