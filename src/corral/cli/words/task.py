"""A task on the terminal: a row of a list, all its facts, or a few words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from corral.cli.terminal import output

if TYPE_CHECKING:
    from corral.cli.terminal.output import Columns
    from corral.wire.tasks import (
        AttemptInfo,
        Estimate,
        TaskDetail,
        TaskErrorInfo,
        TaskInfo,
    )


def status(task: TaskDetail) -> str:
    if task.state and task.state != task.status:
        return f"{task.status} ({task.state})"
    return task.status


def waits(task: TaskDetail) -> str:
    """Why it waits; nothing for one that does not."""
    if task.waiting is None:
        return ""
    if task.waiting.message or not task.waiting.details:
        return task.waiting.text
    return f"{task.waiting.reason} {as_json(task.waiting.details)}"


def progress(task: TaskDetail) -> str:
    if task.progress is None:
        return ""
    share = task.progress.fraction
    words = ("" if share is None else f"{share:.0%}", task.progress.message or "")
    return " ".join(word for word in words if word)


def error(told: TaskErrorInfo | None) -> str:
    return f"{told.kind}: {told.message}" if told else ""


def outcome(task: TaskInfo) -> str:
    """How it ended, and what its error says."""
    return f"{task.status}: {task.error.message}" if task.error else task.status


def labels(task: TaskInfo) -> str:
    return ", ".join(f"{key}={value}" for key, value in task.labels.items())


def ran_s(task: TaskInfo, now: datetime | None = None) -> float | None:
    """How long it took, or has run until now."""
    if task.duration is not None or task.status != "running" or not task.started_at:
        return task.duration
    return max(((now or datetime.now(UTC)) - task.started_at).total_seconds(), 0.0)


def should_take(seconds: float | None, estimate: Estimate | None) -> str:
    """How long a task should take, and how sure that is."""
    if estimate is None or not estimate.runs:
        return output.took(seconds)
    about = output.took(estimate.duration if seconds is None else seconds)
    span = f"{output.took(estimate.low)} to {output.took(estimate.high)}"
    return f"{about}; four of five such tasks: {span} ({estimate.runs} seen)"


def should_need(estimate: Estimate | None) -> str:
    """The GPU memory a task should take beside its model."""
    if estimate is None or estimate.memory_mb is None:
        return ""
    about = f"{estimate.memory_mb:.0f} MB of GPU memory beside its model"
    return f"{about} ({estimate.memory_runs} seen)"


COLUMNS: Columns[TaskInfo] = {
    "TASK": lambda task: task.task_id,
    "TYPE": lambda task: task.task_type,
    "STATUS": lambda task: task.status,
    "PRIORITY": lambda task: task.priority or None,
    "ATTEMPT": lambda task: task.attempt,
    "WORKER": lambda task: task.worker_id,
    "AGE": lambda task: output.age(task.created_at),
    "RAN": lambda task: output.took(ran_s(task)),
    "ERROR": lambda task: error(task.error),
}

ATTEMPTS: Columns[AttemptInfo] = {
    "ATTEMPT": lambda attempt: attempt.attempt,
    "RUN": lambda attempt: attempt.run,
    "OUTCOME": lambda attempt: attempt.outcome,
    "WORKER": lambda attempt: attempt.worker_id,
    "STARTED": lambda attempt: attempt.started_at,
    "ENDED": lambda attempt: attempt.finished_at,
    "ERROR": lambda attempt: error(attempt.error),
}


def options(task: TaskDetail) -> Iterator[tuple[str, Any]]:
    """What else was asked for, where and when it may run."""
    at = f", planned for {task.scheduled_at}" if task.scheduled_at != "now" else ""
    yield "schedule", f"{task.schedule}{at}" if task.schedule else None
    yield "takes", as_json(task.resources) if task.resources else None
    yield "only on", task.only_on
    yield "node labels", ", ".join(f"{k}={v}" for k, v in task.node_labels.items())
    yield "tolerates", ", ".join(task.tolerates)
    limit = f"{task.group}, at most {task.group_limit} at once"
    yield "group", limit if task.group else None
    member = f"{task.gang}, rank {task.gang_rank} of {task.gang_size}"
    yield "gang", member if task.gang else None
    yield "preemptible", "for critical tasks" if task.preemptible else None
    yield "kept result", "is not taken" if task.no_cache else None
    yield "profile", task.profile


def facts(task: TaskDetail) -> Iterator[tuple[str, Any]]:
    """All that is known of it: what was asked for, its course, what became of it."""
    yield "task", task.task_id
    yield "name", task.name
    yield "type", task.task_type
    yield "owner", task.owner
    yield "request", task.request_id
    yield "status", status(task)
    yield "waits", waits(task)
    yield "progress", progress(task)
    yield "parameters", as_json(task.parameters)
    yield "model", task.model_name
    yield "priority", task.priority
    yield "labels", labels(task)
    yield from options(task)
    yield "depends on", ", ".join(task.depends_on)
    yield "notifies", ", ".join(task.notify)
    yield "run after", task.run_after
    yield "deadline", task.deadline
    yield "worker", task.worker_id
    yield "node", task.node_id
    yield "created", task.created_at
    yield "started", task.started_at
    yield "ended", task.completed_at
    yield "took", output.took(task.duration)
    yield "should take", should_take(task.estimated_duration, task.estimate)
    yield "should need", should_need(task.estimate)
    yield "timeout", output.took(task.timeout)
    counts = f"{task.tries} failed, {task.losses} lost"
    yield "attempt", f"{task.attempt} ({counts}, {task.retries} retries allowed)"
    yield "result", as_json(task.result) if task.is_completed else None
    yield "kept from", task.cached_from
    yield "error", error(task.error)
    yield "dead letter", task.dead_letter


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
