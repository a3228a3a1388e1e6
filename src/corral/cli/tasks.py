"""`corral tasks`: list tasks, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli import show
from corral.cli.connect import connect
from corral.cli.group import takes
from corral.cli.which import which

if TYPE_CHECKING:
    from corral.client import TaskQuery


@takes(query=which)
def tasks(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(help="How many at most.", min=1)] = 50,
    as_json: show.JsonFlag = False,
    *,
    query: TaskQuery,
) -> None:
    """List tasks, newest first."""
    with connect(ctx) as client:
        found = list(client.list_tasks(limit=limit, **query))
    if as_json:
        show.echo_values(found)
        return
    if not found:
        _advise(bool(query))
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
