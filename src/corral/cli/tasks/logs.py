"""`corral logs ID`: what a task printed; `corral artifacts`: files it left."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options import arguments
from corral.cli.options.connect import connect
from corral.cli.terminal import output, progress
from corral.cli.terminal.output import size_of

if TYPE_CHECKING:
    from corral.client import LogLine
    from corral.wire.tasks import Progress

artifacts_app = typer.Typer(no_args_is_help=True, help="Files that tasks left.")
Attempt = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Of this attempt; else the last with any."),
]


def logs(
    ctx: typer.Context,
    task_id: arguments.TaskArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the task ends.")
    ] = False,
    attempt: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Only of the task's Nth attempt."),
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option("--tail", "-n", metavar="N", min=0, help="Only the last N lines."),
    ] = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", "-t", help="Show when each line came.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line.")
    ] = False,
    is_raw: output.RawFlag = False,
) -> None:
    """Show what a task printed; its stderr goes to stderr."""

    def write(line: LogLine) -> None:
        if as_json:
            output.echo_json(line.to_dict(), indent=None)
            return
        when = f"{output.cell(line.at)}  " if timestamps else ""
        is_error = line.stream == "stderr"
        target = sys.stderr if is_error else sys.stdout
        text = output.visible(line.text, target, is_raw=is_raw)
        typer.echo(f"{when}{text}", err=is_error)

    with connect(ctx) as client:
        if follow:
            heard = client.follow(task_id, attempt=attempt, tail=tail)
            count = show_all(heard, write)
        else:
            count = show_all(client.logs(task_id, attempt=attempt, tail=tail), write)
    if not count and not as_json:
        output.hint(f"Task {task_id} has printed nothing{'' if follow else ' so far'}.")


def show_all(
    heard: Iterable[LogLine | Progress], write: Callable[[LogLine], object]
) -> int:
    """Lines as they come, with a bar below them on a terminal; how many lines."""
    from corral.client import LogLine

    count = 0
    with progress.share() as say:
        for word in heard:
            if isinstance(word, LogLine):
                write(word)
                count += 1
            else:
                say(word.fraction or 0.0, word.message or "")
    return count


# `corral artifacts list | get`: the files that tasks left.


@artifacts_app.command("list")
def list_(
    ctx: typer.Context,
    task_id: arguments.TaskArgument,
    attempt: Attempt = None,
    as_json: output.JsonFlag = False,
) -> None:
    """List the files a task left."""
    with connect(ctx) as client:
        found = client.artifacts(task_id, attempt=attempt)
    if as_json:
        output.echo_json(found.to_dict())
        return
    if found.artifacts:
        output.table(
            ("FILE", "SIZE", "SHA-256"),
            [(a.name, size_of(a.size), a.digest[:12]) for a in found.artifacts],
        )
    else:
        output.hint(f"Task {task_id} left no files.")
    if found.left_out:
        output.hint(found.left_out)


@artifacts_app.command("get")
def get_(
    ctx: typer.Context,
    task_id: arguments.TaskArgument,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="One file; all of them without it."),
    ] = None,
    to: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder to put them in.")
    ] = Path(),
    attempt: Attempt = None,
    as_json: output.JsonFlag = False,
) -> None:
    """Fetch files a task left; what is there already is not fetched again."""
    with (
        connect(ctx) as client,
        progress.bar(f"fetching files of {task_id}", is_bytes=True) as advance,
    ):
        paths = client.download_artifacts(
            task_id, name, to=to, attempt=attempt, on_progress=advance
        )
    if as_json:
        output.echo_json([str(path) for path in paths])
        return
    for path in paths:
        typer.echo(output.cell(str(path)))
    if not paths:
        output.hint(f"Task {task_id} left no files.")
