"""`corral record`: the scheduler's journal into a file."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Annotated

import typer

from corral.cli import show
from corral.cli.artifacts import size_of
from corral.cli.connect import connect
from corral.cli.window import seconds


def record(
    ctx: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Where to; packed when it ends in .gz."),
    ],
    since: Annotated[
        str, typer.Option(metavar="TIME", help="At least the last 90, 30m, 24h or 7d.")
    ] = "24h",
) -> None:
    """Write down what the scheduler was told and decided, for `corral simulate`.

    It has ids, types, models, labels and times of tasks; nothing of their inputs.
    """
    with connect(ctx) as client:
        lines = client.journal(seconds(since))
    file.write_bytes(gzip.compress(lines) if file.suffix == ".gz" else lines)
    count = len(lines.splitlines())
    show.hint(f"{count} lines, {size_of(len(lines))}: {file}")
