"""`corral dlq`: the dead letters, tasks that failed for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options.connect import connect
from corral.cli.tasks.list import show_task
from corral.cli.terminal import errors, output
from corral.cli.words import task as task_words
from corral.errors import Conflict, NotFound

if TYPE_CHECKING:
    from corral.client.client import Client
    from corral.wire.tasks import TaskInfo

app = typer.Typer(no_args_is_help=True, help="Look through tasks that failed for good.")
_TITLES = ("TASK", "TYPE", "STATUS", "ATTEMPT", "AGE", "ERROR")
_NONE = "No dead letters: nothing has failed for good."
_WALK_LIMIT = 1000
_DONE = {"r": "requeued", "d": "discarded"}
Ids = Annotated[list[str], typer.Argument(metavar="TASK...", help="Their ids.")]


def _dead(client: Client, limit: int) -> list[TaskInfo]:
    return list(client.list_tasks(dead=True, limit=limit))


@app.command("list")
def list_(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(help="How many at most.", min=1)] = 50,
    as_json: output.JsonFlag = False,
) -> None:
    """List dead letters, newest first."""
    with connect(ctx) as client:
        found = _dead(client, limit)
    columns = {title: task_words.COLUMNS[title] for title in _TITLES}
    output.show_list(found, columns, as_json=as_json, none=_NONE)


@app.command("show")
def show_(
    ctx: typer.Context,
    task_id: Annotated[str, typer.Argument(metavar="TASK", help="Its id.")],
    as_json: output.JsonFlag = False,
) -> None:
    """Show a dead letter with its error, traceback and every attempt."""
    with connect(ctx) as client:
        found = client.get_task(task_id)
    if as_json:
        output.echo_json(found.to_dict())
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
    done = dict.fromkeys(_DONE.values(), 0)
    with connect(ctx) as client:
        found = _dead(client, _WALK_LIMIT)
        for number, task in enumerate(found, start=1):
            output.hint(f"{number} of {len(found)}")
            show_task(client.get_task(task.task_id))
            letter = _ask()
            if letter == "q":
                break
            if letter in _DONE and _decide(client, letter, task.task_id):
                done[_DONE[letter]] += 1
    if not found:
        output.hint(_NONE)
        return
    typer.echo(", ".join(f"{count} {word}" for word, count in done.items()))


def _ask() -> str:
    while True:
        said: str = typer.prompt(
            "[r]equeue, [d]iscard, [s]kip, [q]uit", default="s", err=True
        )
        letter = said.strip().lower()[:1]
        if letter and letter in "rdsq":
            return letter
        output.hint("r, d, s or q")


def _decide(client: Client, letter: str, task_id: str) -> bool:
    """False when somebody else was quicker; the walk goes on."""
    try:
        if letter == "r":
            client.requeue(task_id)
        else:
            client.discard(task_id)
    except (Conflict, NotFound) as error:
        errors.report(error)
        return False
    return True
