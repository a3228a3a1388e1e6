"""`corral artifacts list | get`: the files that tasks left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from corral.cli import argument, progress, show
from corral.cli.connect import connect

app = typer.Typer(no_args_is_help=True, help="Files that tasks left.")
Attempt = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Of this attempt; else the last with any."),
]


@app.command("list")
def list_(
    ctx: typer.Context,
    task_id: argument.TaskArgument,
    attempt: Attempt = None,
    as_json: show.JsonFlag = False,
) -> None:
    """List the files a task left."""
    with connect(ctx) as client:
        found = client.artifacts(task_id, attempt=attempt)
    if as_json:
        show.echo_json(found.to_dict())
        return
    if found.artifacts:
        show.table(
            ("FILE", "SIZE", "SHA-256"),
            [(a.name, size_of(a.size), a.digest[:12]) for a in found.artifacts],
        )
    else:
        show.hint(f"Task {task_id} left no files.")
    if found.left_out:
        show.hint(found.left_out)


@app.command("get")
def get_(
    ctx: typer.Context,
    task_id: argument.TaskArgument,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="One file; all of them without it."),
    ] = None,
    to: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder to put them in.")
    ] = Path(),
    attempt: Attempt = None,
    as_json: show.JsonFlag = False,
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
        show.echo_json([str(path) for path in paths])
        return
    for path in paths:
        typer.echo(show.cell(str(path)))
    if not paths:
        show.hint(f"Task {task_id} left no files.")


def size_of(size: int) -> str:
    """Bytes in their largest sensible unit."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
