"""`corral logs ID`: what a task printed, as it printed it."""

from __future__ import annotations

from typing import Annotated

import typer

from corral.cli import argument, show
from corral.cli.connect import connect


def logs(
    ctx: typer.Context,
    task_id: argument.TaskArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the task ends.")
    ] = False,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", "-t", help="Show when each line came.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line.")
    ] = False,
) -> None:
    """Show what a task printed; its stderr goes to stderr."""
    is_silent = True
    with connect(ctx) as client:
        for line in client.logs(task_id, follow=follow):
            is_silent = False
            if as_json:
                show.echo_json(line.to_dict(), indent=None)
                continue
            when = f"{show.cell(line.at)}  " if timestamps else ""
            typer.echo(f"{when}{line.text}", err=line.stream == "stderr")
    if is_silent and not as_json:
        show.hint(f"Task {task_id} has printed nothing{'' if follow else ' so far'}.")
