"""`corral wait ID...`: wait until tasks have ended, and say how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli import argument, array, fault, progress, show
from corral.cli.connect import connect

if TYPE_CHECKING:
    from corral.client import Client, TaskInfo


def wait(
    ctx: typer.Context,
    task_ids: argument.SomeTasksArgument = None,
    array_id: array.ArrayId = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="S", help="Seconds to wait at most.", min=0),
    ] = None,
    as_json: show.JsonFlag = False,
) -> None:
    """Wait until tasks have ended; exits 1 unless all completed."""
    with connect(ctx) as client:
        ids = argument.read_some(task_ids, array_id)
        if array_id is not None:
            ids = [t.task_id for t in array.known_tasks_of(client, array_id)]
        ended = await_all(client, ids, timeout)
    if array_id is not None:
        array.leave(array_id, ended, as_json)
        return
    if as_json:
        show.echo_values(ended)
    else:
        for task in ended:
            typer.echo(f"{task.task_id} {task.status}")
    failed = [task for task in ended if not task.is_completed]
    for task in failed:
        show.hint(f"Error: {_say(task)}")
    if failed:
        raise typer.Exit(fault.FAILED)


def await_all(client: Client, ids: list[str], timeout: float | None) -> list[TaskInfo]:
    """The tasks when all have ended, with a bar on a terminal."""
    with progress.bar("waiting") as advance:
        on_progress = advance if progress.is_live() else None
        return client.wait_many(ids, timeout, on_progress=on_progress)


def _say(task: TaskInfo) -> str:
    said = f": {task.error.message}" if task.error else ""
    return fault.one_line(f"task {task.task_id} {task.status}{said}")
