"""`corral tasks`: list tasks, newest first."""

from __future__ import annotations

from typing import Annotated

import typer

from corral.cli import argument, show
from corral.cli.connect import connect


def tasks(
    ctx: typer.Context,
    status: Annotated[
        str | None,
        typer.Option(help="Only queued, running, completed, failed, ... ones."),
    ] = None,
    task_type: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="Only of this type.")
    ] = None,
    worker: Annotated[
        str | None, typer.Option(metavar="WORKER", help="Only on this worker.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="KEY=VALUE", help="Only with this label.")
    ] = None,
    dead: Annotated[
        bool, typer.Option("--dead", help="Only dead letters: failed for good.")
    ] = False,
    request: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only those that came with this request."),
    ] = None,
    limit: Annotated[int, typer.Option(help="How many at most.", min=1)] = 50,
    as_json: show.JsonFlag = False,
) -> None:
    """List tasks, newest first."""
    with connect(ctx) as client:
        found = list(
            client.list_tasks(
                status=status,
                task_type=task_type,
                worker_id=worker,
                label=argument.label_pair(label),
                dead=True if dead else None,
                request_id=request,
                limit=limit,
            )
        )
    if as_json:
        show.echo_values(found)
        return
    if not found:
        _advise(any((status, task_type, worker, label, dead, request)))
        return
    show.table(
        ("TASK", "TYPE", "STATUS", "PRIORITY", "ATTEMPT", "WORKER", "AGE", "TOOK"),
        [
            (
                task.task_id,
                task.task_type,
                task.status,
                task.priority or None,
                task.attempt,
                task.worker_id,
                show.ago(task.created_at),
                show.took(task.duration),
            )
            for task in found
        ],
    )


def _advise(is_filtered: bool) -> None:
    if is_filtered:
        show.hint("No task is like that; 'corral tasks' lists all.")
    else:
        show.hint('No tasks yet. Try: corral run echo \'{"message": "hi"}\'')
