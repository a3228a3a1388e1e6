"""`corral tasks`: a list of them; `corral task ID`: all that is known about one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corral.cli.options import arguments
from corral.cli.options.connect import connect
from corral.cli.options.shared_options import takes
from corral.cli.options.task_filter import which
from corral.cli.tasks.explain import should_need, should_take
from corral.cli.terminal import output

if TYPE_CHECKING:
    from corral.client import TaskDetail, TaskQuery
    from corral.wire.tasks import TaskErrorInfo


def task(
    ctx: typer.Context,
    task_id: arguments.TaskArgument,
    as_json: output.JsonFlag = False,
) -> None:
    """Show all about one task: why it waits, its attempts, result or error."""
    with connect(ctx) as client:
        found = client.get_task(task_id)
    if as_json:
        output.echo_json(found.to_dict())
    else:
        show_task(found)


def show_task(found: TaskDetail) -> None:
    output.facts([*_identity(found), *_course(found), *_outcome(found)])
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
        ("took", output.took(found.duration)),
        ("should take", should_take(found.estimated_duration, found.estimate)),
        ("should need", should_need(found.estimate)),
        ("timeout", output.took(found.timeout)),
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
    output.table(
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


def _error(error: TaskErrorInfo | None) -> str:
    return f"{error.kind}: {error.message}" if error else ""


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text).rstrip()


# `corral tasks`: list tasks, newest first.


@takes(query=which)
def tasks(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(help="How many at most.", min=1)] = 50,
    as_json: output.JsonFlag = False,
    *,
    query: TaskQuery,
) -> None:
    """List tasks, newest first."""
    with connect(ctx) as client:
        found = list(client.list_tasks(limit=limit, **query))
    if as_json:
        output.echo_values(found)
        return
    if not found:
        _advise(bool(query))
        return
    output.table(
        ("TASK", "TYPE", "STATUS", "PRIORITY", "ATTEMPT", "WORKER", "AGE", "TOOK"),
        [
            (
                task.task_id,
                task.task_type,
                task.status,
                task.priority or None,
                task.attempt,
                task.worker_id,
                output.ago(task.created_at),
                output.took(task.duration),
            )
            for task in found
        ],
    )


def _advise(is_filtered: bool) -> None:
    if is_filtered:
        output.hint("No task is like that; 'corral tasks' lists all.")
    else:
        output.hint('No tasks yet. Try: corral run echo \'{"message": "hi"}\'')
