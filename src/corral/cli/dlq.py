"""`corral dlq`: the dead letters, tasks that failed for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli import show
from corral.cli.connect import connect
from corral.cli.task import show_task

if TYPE_CHECKING:
    from corral.client.face import Client
    from corral.client.value import TaskInfo

app = typer.Typer(no_args_is_help=True, help="Look through tasks that failed for good.")
Ids = Annotated[list[str], typer.Argument(metavar="TASK...", help="Their ids.")]


def _dead(client: Client, limit: int) -> list[TaskInfo]:
    return list(client.list_tasks(dead=True, limit=limit))


@app.command("list")
def list_(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(help="How many at most.", min=1)] = 50,
    as_json: show.JsonFlag = False,
) -> None:
    """List dead letters, newest first."""
    with connect(ctx) as client:
        found = _dead(client, limit)
    if as_json:
        show.echo_values(found)
        return
    if not found:
        show.hint("No dead letters: nothing has failed for good.")
        return
    show.table(
        ("TASK", "TYPE", "STATUS", "ATTEMPT", "AGE", "ERROR"),
        [
            (
                task.task_id,
                task.task_type,
                task.status,
                task.attempt,
                show.ago(task.created_at),
                task.error.message if task.error else None,
            )
            for task in found
        ],
    )


@app.command("show")
def show_(
    ctx: typer.Context,
    task_id: Annotated[str, typer.Argument(metavar="TASK", help="Its id.")],
    as_json: show.JsonFlag = False,
) -> None:
    """Show a dead letter with its error, traceback and every attempt."""
    with connect(ctx) as client:
        found = client.get_task(task_id)
    if as_json:
        show.echo_json(found.to_dict())
    else:
        show_task(found)


@app.command()
def requeue(ctx: typer.Context, task_ids: Ids) -> None:
    """Run dead letters again, under the same ids."""
    with connect(ctx) as client:
        for task_id in task_ids:
            client.requeue(task_id)
            typer.echo(f"requeued {task_id}")


@app.command()
def discard(ctx: typer.Context, task_ids: Ids) -> None:
    """Take tasks out of the dead letters; their record stays."""
    with connect(ctx) as client:
        for task_id in task_ids:
            client.discard(task_id)
            typer.echo(f"discarded {task_id}")


@app.command()
def walk(ctx: typer.Context) -> None:
    """Go through the dead letters one by one: requeue, discard, skip or quit."""
    with connect(ctx) as client:
        for task in _dead(client, 1000):
            show_task(client.get_task(task.task_id))
            choice = typer.prompt("[r]equeue, [d]iscard, [s]kip, [q]uit", default="s")
            if choice.startswith("q"):
                return
            if choice.startswith("r"):
                client.requeue(task.task_id)
            elif choice.startswith("d"):
                client.discard(task.task_id)
    show.hint("That was the last one.")
