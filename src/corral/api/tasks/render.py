"""From our values to the answers' shapes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Raw
from msgspec.structs import asdict

from corral.api.tasks.intake import ASKED
from corral.api.tasks.shapes import (
    AttemptOut,
    ErrorOut,
    TaskAccepted,
    TaskBrief,
    TaskOut,
)
from corral.core.insight.learned import Figure
from corral.core.tasks.needs import NOTHING, plain
from corral.core.tasks.options import SpecOptions
from corral.core.tasks.result_cache import cached_from
from corral.core.tasks.task import Attempt, State, Task, TaskError
from corral.manager.app import Manager
from corral.manager.tasks.submit import Accepted
from corral.scheduler.explain.values import ExpectedStart
from corral.wire.tasks import Estimate, Progress, Start, WaitReason


def asked(options: SpecOptions) -> dict[str, Any]:
    """The options that people ask for, as answers say them."""
    told = {name: getattr(options, name) for name in ASKED}
    return told | {"resources": plain(options.resources or NOTHING)}


def status_of(state: State) -> str:
    """The documents know no `assigned`: such a task still counts as queued."""
    return "queued" if state is State.ASSIGNED else str(state)


def _error(error: TaskError | None) -> ErrorOut | None:
    return ErrorOut.of(error) if error else None


def _raw(text: str | None) -> Raw | None:
    return Raw(text.encode("utf-8", "surrogatepass")) if text else None


def _duration(task: Task) -> float | None:
    if task.started_at is None or task.finished_at is None:
        return None
    return max(0.0, (task.finished_at - task.started_at).total_seconds())


def accepted(manager: Manager, answer: Accepted) -> TaskAccepted:
    task, explain = answer.task, manager.explain
    now = manager.now().timestamp()
    start = explain.start(task, now)
    return TaskAccepted(
        task_id=task.id,
        status=status_of(task.state),
        estimated_wait_time=max(0.0, start.at - now)
        if start is not None
        else 0.0
        if task.is_terminal
        else explain.wait_s(task.spec.job_type),
        assigned_worker=task.worker_id,
        created_at=task.created_at,
        estimated_duration=explain.run_s(task),
        estimated_start=start_out(start, now),
        cached_from=cached_from(task),
    )


def start_out(start: ExpectedStart | None, now: float) -> Start | None:
    if start is None:
        return None
    at, low, high = (
        datetime.fromtimestamp(t, UTC) for t in (start.at, start.low, start.high)
    )
    in_s = round(max(0.0, start.at - now), 3)
    return Start(at=at, low=low, high=high, in_s=in_s)


def brief(task: Task, *, with_result: bool = True) -> TaskBrief:
    spec = task.spec
    return TaskBrief(
        task_id=spec.id,
        task_type=spec.job_type,
        status=status_of(task.state),
        priority=spec.priority,
        attempt=task.attempt,
        worker_id=task.worker_id,
        created_at=task.created_at,
        started_at=task.started_at,
        completed_at=task.finished_at,
        duration=_duration(task),
        result=_raw(task.result) if with_result else None,
        error=_error(task.error),
        labels=dict(spec.labels),
        model_name=spec.model,
        name=spec.options.name,
        schedule=spec.options.schedule,
        scheduled_at=spec.options.scheduled_at,
    )


def full(manager: Manager, task: Task, attempts: Sequence[Attempt]) -> TaskOut:
    spec = task.spec
    explain = manager.explain
    reason = explain.why(task)
    progress = manager.tasks.reads.progress(task.id)
    options = spec.options
    now = manager.now().timestamp()
    start = None if task.is_terminal else explain.start(task, now)
    short = brief(task)
    return TaskOut(
        **asdict(short) | asked(options),
        state=str(task.state),
        parameters=_raw(spec.payload),
        assigned_at=task.assigned_at,
        timeout=spec.timeout_s,
        retries=spec.retries,
        tries=task.tries,
        losses=task.losses,
        run=task.run,
        run_after=spec.run_after,
        deadline=spec.deadline,
        idempotency_key=spec.idempotency_key,
        depends_on=list(spec.depends_on),
        request_id=options.request_id or None,
        node_id=task.node_id,
        assigned_worker=task.worker_id,
        progress=progress_out(progress),
        waiting=WaitReason.of(reason) if reason else None,
        owner=spec.owner,
        estimated_duration=None if task.is_terminal else explain.run_s(task),
        estimate=None if task.is_terminal else estimate(*explain.figures(task)),
        estimated_start=start_out(start, now),
        dead_letter=task.dead_letter,
        cached_from=cached_from(task),
        attempts=[attempt(a) for a in attempts],
    )


def attempt(row: Attempt) -> AttemptOut:
    return AttemptOut.of(row)


def progress_out(told: tuple[float, str] | None) -> Progress | None:
    return Progress(fraction=told[0], message=told[1]) if told else None


def estimate(run: Figure | None, memory: Figure | None) -> Estimate | None:
    """None before any task like it has run."""
    if run is None:
        return None
    value, low, high = (round(s, 3) for s in (run.value, run.low, run.high))
    return Estimate(
        duration=value,
        low=low,
        high=high,
        runs=run.count,
        memory_mb=round(memory.value) if memory else None,
        memory_high_mb=round(memory.high) if memory else None,
        memory_runs=memory.count if memory else 0,
    )
