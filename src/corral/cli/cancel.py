"""`corral cancel ID...`: stop tasks, queued or running, by id or all that match."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import typer

from corral.cli import argument, array, fault
from corral.cli.connect import connect
from corral.cli.group import takes
from corral.cli.which import tell, which
from corral.errors import Conflict, NotFound

if TYPE_CHECKING:
    from corral.client import TaskQuery


@takes(query=which)
def cancel(
    ctx: typer.Context,
    task_ids: argument.SomeTasksArgument = None,
    array_id: array.ArrayId = None,
    *,
    query: TaskQuery,
) -> None:
    """Stop tasks, queued or running; exits 1 when one could not be stopped.

    Without ids, all that the options mean.
    """
    if array_id is not None and query:
        argument.refuse(
            "--array means all of it: leave the other options out", "--array"
        )
    is_other = array_id is not None or bool(query)
    other = "an array with --array, or options"
    ids = argument.read_chosen(task_ids, is_other=is_other, other=other)
    if array_id is not None:
        _cancel_array(ctx, array_id)
        return
    code = 0
    with connect(ctx) as client:
        if query:
            tell(client.cancel_tasks(**query), "cancelled")
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
