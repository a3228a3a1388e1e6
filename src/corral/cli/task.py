"""`corral task ID`: all that is known about one task, and why it waits."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer

from corral.cli import argument, show
from corral.cli.connect import connect
from corral.cli.explain import should_need, should_take

if TYPE_CHECKING:
    from corral.client import TaskDetail
    from corral.client.values import TaskError


def task(
    ctx: typer.Context, task_id: argument.TaskArgument, as_json: show.JsonFlag = False
) -> None:
    """Show all about one task: why it waits, its attempts, result or error."""
    with connect(ctx) as client:
        found = client.get_task(task_id)
    if as_json:
        show.echo_json(found.to_dict())
    else:
        show_task(found)


def show_task(found: TaskDetail) -> None:
    show.facts([*_identity(found), *_course(found), *_outcome(found)])
    if found.attempts:
        typer.echo()
        _print_attempts(found)
    if found.error and found.error.traceback:
        typer.echo()
        typer.echo(_printable(found.error.traceback))


def _identity(found: TaskDetail) -> Iterable[tuple[str, Any]]:
    return [
        ("task", found.task_id),
        ("type", found.task_type),
        ("owner", found.owner),
        ("request", found.request_id),
        ("status", _status(found)),
        ("waits", _waiting(found)),
        ("progress", _progress(found)),
        ("parameters", _json(found.parameters)),
        ("model", found.model_name),
        ("priority", found.priority),
        ("labels", ", ".join(f"{k}={v}" for k, v in found.labels.items())),
        ("depends on", ", ".join(found.depends_on)),
        ("notifies", ", ".join(found.notify)),
        ("run after", found.run_after),
        ("deadline", found.deadline),
    ]


def _course(found: TaskDetail) -> Iterable[tuple[str, Any]]:
    counts = f"{found.tries} failed, {found.losses} lost"
    return [
        ("worker", found.worker_id),
        ("node", found.node_id),
        ("created", found.created_at),
        ("started", found.started_at),
        ("ended", found.completed_at),
        ("took", show.took(found.duration)),
        ("should take", should_take(found.estimated_duration, found.estimate)),
        ("should need", should_need(found.estimate)),
        ("timeout", show.took(found.timeout)),
        ("attempt", f"{found.attempt} ({counts}, {found.retries} retries allowed)"),
    ]


def _outcome(found: TaskDetail) -> Iterable[tuple[str, Any]]:
    return [
        ("result", _json(found.result) if found.is_completed else None),
        ("kept from", found.cached_from),
        ("error", _error(found.error)),
        ("dead letter", found.dead_letter),
    ]


def _status(found: TaskDetail) -> str:
    if found.state and found.state != found.status:
        return f"{found.status} ({found.state})"
    return found.status


def _waiting(found: TaskDetail) -> str:
    if found.waiting is None:
        return ""
    if found.waiting.message or not found.waiting.details:
        return found.waiting.text
    return f"{found.waiting.reason} {_json(found.waiting.details)}"


def _progress(found: TaskDetail) -> str:
    if found.progress is None:
        return ""
    share = found.progress.fraction
    return f"{'' if share is None else f'{share:.0%} '}{found.progress.message or ''}"


def _print_attempts(found: TaskDetail) -> None:
    show.table(
        ("ATTEMPT", "RUN", "OUTCOME", "WORKER", "STARTED", "ENDED", "ERROR"),
        [
            (
                attempt.attempt,
                attempt.run,
                attempt.outcome,
                attempt.worker_id,
                attempt.started_at,
                attempt.finished_at,
                _error(attempt.error),
            )
            for attempt in found.attempts
        ],
    )


def _error(error: TaskError | None) -> str:
    return f"{error.kind}: {error.message}" if error else ""


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text).rstrip()
