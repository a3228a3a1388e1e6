"""A task as spans of a trace: which there are, what they are called, when they were.

Ids are made of what the task has anyway. So a manager that begins anew makes the same
ones, and a worker is told of its span long before that has ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import blake2b

from corral.core.tasks.outcome import OutcomeKind, Settlement
from corral.core.tasks.result_cache import cached_from
from corral.core.tasks.task import State, Task

Facts = Mapping[str, str | int]
_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")
_RANDOM = 14
"""Hex digits at the end of a trace id that are random in every way of making one."""
_TROUBLE = frozenset({OutcomeKind.FAILED, OutcomeKind.TIMED_OUT, OutcomeKind.LOST})
_WRONG = frozenset({State.FAILED, State.ERROR, State.TIMED_OUT})
_MESSAGE = 500
_PAYLOAD = 2048


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened within a span."""

    name: str
    at: datetime
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """`trouble` is what went wrong; None where nothing did."""

    trace_id: str
    id: str
    parent_id: str
    name: str
    begin: datetime
    end: datetime
    facts: Facts
    moments: tuple[SpanEvent, ...] = ()
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptHistory:
    """What was before an attempt: when its run began, when it began to wait."""

    run_at: datetime
    since: datetime
    moments: tuple[SpanEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """An attempt that has ended, without what it gave.

    `past` is None where nothing was before, or where a former manager knew of it.
    """

    task: Task
    state: State
    outcome: str
    finished_at: datetime
    started_at: datetime | None = None
    duration_s: float = 0.0
    load_s: float = 0.0
    kind: str = ""
    message: str = ""
    past: AttemptHistory | None = None


def light(task: Task) -> Task:
    """The task without what makes it large: many may wait to be sent."""
    if task.result is None and len(task.spec.payload) <= _PAYLOAD:
        return task
    return replace(task, result=None, spec=replace(task.spec, payload=""))


def ended(task: Task, row: Settlement, past: AttemptHistory | None) -> EndedAttempt:
    error = row.error
    return EndedAttempt(
        light(task),
        row.state,
        row.outcome,
        row.finished_at,
        row.started_at or task.started_at,
        row.duration_s,
        row.load_s,
        error.kind if error else "",
        error.message[:_MESSAGE] if error else "",
        past,
    )


def gone_back(row: Settlement) -> SpanEvent:
    """That an attempt ended and its task waits again."""
    name = "lost" if row.outcome is OutcomeKind.LOST else "retry"
    if row.outcome is OutcomeKind.RETURNED:
        name = "returned"
    facts: dict[str, str | int] = {"corral.attempt": row.attempt}
    if row.error is not None:
        facts["error.type"] = row.error.kind
    return SpanEvent(name, row.finished_at, facts)


# ids --------------------------------------------------------------------------
def trace_id_of(task: Task) -> str:
    """The caller's, else the task's own id: whoever has that finds the trace."""
    parent = task.spec.options.traceparent
    if parent:
        return parent[3:35]
    plain = task.id.replace("-", "")
    if _TRACE_ID.fullmatch(plain):
        return plain
    return blake2b(task.id.encode("utf-8", "replace"), digest_size=16).hexdigest()


def is_sampled(task: Task, ratio: float = 1.0) -> bool:
    """As the caller decided; of tasks that came without a trace, `ratio` of all."""
    parent = task.spec.options.traceparent
    if parent:
        return bool(int(parent[-2:], 16) & 1)
    if ratio >= 1.0:
        return True
    digits = trace_id_of(task)[-_RANDOM:]
    return int(digits, 16) < ratio * (1 << 4 * _RANDOM)


def traceparent_of(task: Task, ratio: float = 1.0) -> str:
    """What an attempt's own spans are to hang under: its `run`."""
    if not is_sampled(task, ratio):
        # Nothing is made here for them to hang under.
        given = task.spec.options.traceparent
        return given or f"00-{trace_id_of(task)}-{_root_id(task)}-00"
    return f"00-{trace_id_of(task)}-{_id(task, 'run')}-01"


def _root_id(task: Task) -> str:
    return _hash(f"{task.id}/{task.run}")


def _id(task: Task, name: str) -> str:
    return _hash(f"{task.id}/{task.run}/{task.attempt}/{name}")


def _hash(text: str) -> str:
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


# spans ------------------------------------------------------------------------
def spans_of(done: EndedAttempt) -> list[Span]:
    """Those of an attempt, and after its last one that of the whole task."""
    spans = [] if cached_from(done.task) else list(_attempt(done))
    if done.state is not State.QUEUED:
        spans.append(_root(done))
    return spans


def _root(done: EndedAttempt) -> Span:
    task, parent = done.task, done.task.spec.options.traceparent
    facts: dict[str, str | int] = {
        "corral.task_id": task.id,
        "corral.task_type": task.spec.job_type,
        "corral.status": str(done.state),
        "corral.attempt": task.attempt,
        "corral.run": task.run,
        **_known("corral.model", task.spec.model),
        **_known("corral.request_id", task.spec.options.request_id),
        **_known("corral.cached_from", cached_from(task)),
        **_known("error.type", done.kind),
    }
    return Span(
        trace_id_of(task),
        _root_id(task),
        parent[36:52],
        f"task {task.spec.job_type}",
        min(_run_at(done), done.finished_at),
        done.finished_at,
        facts,
        done.past.moments if done.past else (),
        done.message if done.state in _WRONG else None,
    )


def _run_at(done: EndedAttempt) -> datetime:
    if done.past is not None:
        return done.past.run_at
    task = done.task
    return task.created_at if task.run == 1 else task.assigned_at or done.finished_at


def _attempt(done: EndedAttempt) -> Iterator[Span]:
    """`queue`, `load`, `run`, one after the other, and within the task's time.

    Start and duration are told by another machine, whose clock may be a little off.
    """
    task, end = done.task, done.finished_at
    since = min(_since(done), end)
    given = _within(task.assigned_at or since, since, end)
    run = end if done.started_at is None else _within(done.started_at, given, end)
    load = _within(run - timedelta(seconds=done.load_s), given, run)
    yield _part(done, "queue", since, load, _waiting(done, since, load))
    if done.started_at is None:
        return
    if done.load_s:
        yield _part(done, "load", load, run)
    took = timedelta(seconds=done.duration_s)
    until = min(run + took, end) if took else end
    trouble = done.message if done.outcome in _TROUBLE else None
    yield _part(done, "run", run, until, trouble=trouble)


def _since(done: EndedAttempt) -> datetime:
    if done.past is not None:
        return done.past.since
    task = done.task
    if task.attempt == 1:
        return task.created_at
    # When it went back is known to a former manager alone.
    return task.assigned_at or done.finished_at


def _waiting(
    done: EndedAttempt, since: datetime, until: datetime
) -> tuple[SpanEvent, ...]:
    task = done.task
    moments = []
    if (due := task.spec.run_after) is not None and since < due <= until:
        moments.append(SpanEvent("due", due))
    if (given := task.assigned_at) is not None:
        moments.append(SpanEvent("assigned", _within(given, since, until)))
    return tuple(moments)


def _part(
    done: EndedAttempt,
    name: str,
    begin: datetime,
    end: datetime,
    moments: tuple[SpanEvent, ...] = (),
    trouble: str | None = None,
) -> Span:
    task = done.task
    facts: dict[str, str | int] = {
        "corral.task_id": task.id,
        "corral.attempt": task.attempt,
        **_known("corral.worker_id", task.worker_id),
        **_known("corral.node_id", task.node_id),
        **_known("corral.model", task.spec.model if name != "queue" else None),
    }
    if name == "run":
        facts["corral.outcome"] = str(done.outcome)
        facts |= _known("error.type", done.kind)
    ids = (trace_id_of(task), _id(task, name), _root_id(task))
    return Span(*ids, name, begin, end, facts, moments, trouble)


def _known(name: str, value: str | None) -> dict[str, str]:
    return {name: value} if value else {}


def _within(at: datetime, first: datetime, last: datetime) -> datetime:
    return min(max(at, first), last)
