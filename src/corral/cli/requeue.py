"""`corral requeue ID...`: run ended tasks again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from corral.cli import argument, fault
from corral.cli.connect import connect
from corral.cli.group import takes
from corral.cli.which import tell, which
from corral.errors import Conflict, NotFound

if TYPE_CHECKING:
    from corral.client import TaskQuery


@takes(query=which)
def requeue(
    ctx: typer.Context,
    task_ids: argument.SomeTasksArgument = None,
    *,
    query: TaskQuery,
) -> None:
    """Run ended tasks again under the same ids; exits 1 when one could not be.

    Without ids, all that the options mean; without --status, those that failed.
    """
    ids = argument.read_chosen(task_ids, is_other=bool(query), other="options")
    code = 0
    with connect(ctx) as client:
        if query:
            tell(client.requeue_tasks(**query), "requeued")
        for task_id in ids:
            try:
                client.requeue(task_id)
            except (Conflict, NotFound) as error:
                code = fault.report(error)
            else:
                typer.echo(f"requeued {task_id}")
    raise typer.Exit(code)
