"""`corral logs ID`: what a task printed, as it printed it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli import argument, progress, show
from corral.cli.connect import connect

if TYPE_CHECKING:
    from corral.client import LogLine
    from corral.client.values import Progress


def logs(
    ctx: typer.Context,
    task_id: argument.TaskArgument,
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
) -> None:
    """Show what a task printed; its stderr goes to stderr."""

    def write(line: LogLine) -> None:
        if as_json:
            show.echo_json(line.to_dict(), indent=None)
            return
        when = f"{show.cell(line.at)}  " if timestamps else ""
        typer.echo(f"{when}{line.text}", err=line.stream == "stderr")

    with connect(ctx) as client:
        if follow:
            heard = client.follow(task_id, attempt=attempt, tail=tail)
            count = show_all(heard, write)
        else:
            count = show_all(client.logs(task_id, attempt=attempt, tail=tail), write)
    if not count and not as_json:
        show.hint(f"Task {task_id} has printed nothing{'' if follow else ' so far'}.")


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
