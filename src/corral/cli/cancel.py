"""`corral cancel ID...`: stop tasks, queued or running."""

from __future__ import annotations

import contextlib

import typer

from corral.cli import argument, array, fault
from corral.cli.connect import connect
from corral.errors import Conflict, NotFound


def cancel(
    ctx: typer.Context,
    task_ids: argument.SomeTasksArgument = None,
    array_id: array.ArrayId = None,
) -> None:
    """Stop tasks, queued or running; exits 1 when one could not be stopped."""
    ids = argument.read_some(task_ids, array_id)
    if array_id is not None:
        _cancel_array(ctx, array_id)
        return
    code = 0
    with connect(ctx) as client:
        for task_id in ids:
            try:
                client.cancel(task_id)
            except (Conflict, NotFound) as error:
                code = fault.report(error)
            else:
                typer.echo(f"cancelled {task_id}")
    raise typer.Exit(code)


def _cancel_array(ctx: typer.Context, array_id: str) -> None:
    with connect(ctx) as client:
        array.known_tasks_of(client, array_id)
        for task in array.tasks_of(client, array_id, "queued,running"):
            # One that ends by itself meanwhile is as well.
            with contextlib.suppress(Conflict):
                client.cancel(task.task_id)
        typer.echo(array.summary(array_id, array.tasks_of(client, array_id)))
