"""`corral tasks`: a list of them; `corral task ID`: all that is known about one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options import arguments
from corral.cli.options.arguments import takes
from corral.cli.options.connect import connect
from corral.cli.options.task_filter import which
from corral.cli.terminal import output
from corral.cli.words import task as task_words

if TYPE_CHECKING:
    from corral.client import TaskDetail, TaskQuery

# Of what went wrong 'corral task ID' tells more than fits a row.
_COLUMNS = {
    title: words for title, words in task_words.COLUMNS.items() if title != "ERROR"
}


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
    output.facts(task_words.facts(found))
    if found.attempts:
        typer.echo()
        output.print_grid(output.list_grid(found.attempts, task_words.ATTEMPTS))
    if found.error and found.error.traceback:
        typer.echo()
        typer.echo(_printable(found.error.traceback))


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
    none = 'No tasks yet. Try: corral run echo \'{"message": "hi"}\''
    if query:
        none = "No task is like that; 'corral tasks' lists all."
    output.show_list(found, _COLUMNS, as_json=as_json, none=none)
