"""`corral wait`, `cancel` and `requeue`: what is done to tasks that are there."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options import arguments
from corral.cli.options.arguments import takes
from corral.cli.options.connect import connect
from corral.cli.options.task_filter import tell, which
from corral.cli.tasks import array
from corral.cli.terminal import errors, output, progress
from corral.cli.words import task as task_words
from corral.errors import Conflict, NotFound

if TYPE_CHECKING:
    from corral.client import Client, TaskInfo, TaskQuery


def wait(
    ctx: typer.Context,
    task_ids: arguments.SomeTasksArgument = None,
    array_id: array.ArrayId = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="S", help="Seconds to wait at most.", min=0),
    ] = None,
    as_json: output.JsonFlag = False,
) -> None:
    """Wait until tasks have ended; exits 1 unless all completed."""
    with connect(ctx) as client:
        ids = arguments.read_some(task_ids, array_id)
        if array_id is not None:
            ids = [t.task_id for t in array.known_tasks_of(client, array_id)]
        ended = await_all(client, ids, timeout)
    if array_id is not None:
        array.leave(array_id, ended, as_json)
        return
    if as_json:
        output.echo_values(ended)
    else:
        for task in ended:
            typer.echo(f"{task.task_id} {task.status}")
    failed = [task for task in ended if not task.is_completed]
    for task in failed:
        text = f"task {task.task_id} {task_words.outcome(task)}"
        output.hint(f"Error: {errors.one_line(text)}")
    if failed:
        raise typer.Exit(errors.FAILED)


def await_all(client: Client, ids: list[str], timeout: float | None) -> list[TaskInfo]:
    """The tasks when all have ended, with a bar on a terminal."""
    with progress.bar("waiting") as advance:
        on_progress = advance if progress.is_live() else None
        return client.wait_many(ids, timeout, on_progress=on_progress)


# `corral cancel ID...`: stop tasks, queued or running, by id or all that match.


@takes(query=which)
def cancel(
    ctx: typer.Context,
    task_ids: arguments.SomeTasksArgument = None,
    array_id: array.ArrayId = None,
    *,
    query: TaskQuery,
) -> None:
    """Stop tasks, queued or running; exits 1 when one could not be stopped.

    Without ids, all that the options mean.
    """
    if array_id is not None and query:
        arguments.refuse(
            "--array means all of it: leave the other options out", "--array"
        )
    is_other = array_id is not None or bool(query)
    other = "an array with --array, or options"
    ids = arguments.read_chosen(task_ids, is_other=is_other, other=other)
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
                code = errors.report(error)
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


# `corral requeue ID...`: run ended tasks again.


@takes(query=which)
def requeue(
    ctx: typer.Context,
    task_ids: arguments.SomeTasksArgument = None,
    *,
    query: TaskQuery,
) -> None:
    """Run ended tasks again under the same ids; exits 1 when one could not be.

    Without ids, all that the options mean; without --status, those that failed.
    """
    ids = arguments.read_chosen(task_ids, is_other=bool(query), other="options")
    code = 0
    with connect(ctx) as client:
        if query:
            tell(client.requeue_tasks(**query), "requeued")
        for task_id in ids:
            try:
                client.requeue(task_id)
            except (Conflict, NotFound) as error:
                code = errors.report(error)
            else:
                typer.echo(f"requeued {task_id}")
    raise typer.Exit(code)
