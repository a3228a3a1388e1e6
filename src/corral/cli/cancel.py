"""`corral cancel ID...`: stop tasks, queued or running."""

from __future__ import annotations

import typer

from corral.cli import argument, fault
from corral.cli.connect import connect
from corral.errors import Conflict, NotFound


def cancel(ctx: typer.Context, task_ids: argument.TasksArgument) -> None:
    """Stop tasks, queued or running; exits 1 when one could not be stopped."""
    code = 0
    with connect(ctx) as client:
        for task_id in argument.read_ids(task_ids):
            try:
                client.cancel(task_id)
            except (Conflict, NotFound) as error:
                code = fault.report(error)
            else:
                typer.echo(f"cancelled {task_id}")
    raise typer.Exit(code)
