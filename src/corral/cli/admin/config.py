"""`corral config`: every setting, its value and its origin; `corral version`."""

from __future__ import annotations

import json as json_text
import platform
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from corral import __version__
from corral.cli.options.connect import connect
from corral.cli.terminal import output
from corral.errors import SettingsError

if TYPE_CHECKING:
    from corral.settings import Row, Settings


# Wide enough for any line when nobody looks: a pipe has no width to wrap at.
_PIPE_WIDTH = 240


def config(
    ctx: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    webhook_secret: Annotated[
        bool,
        typer.Option(
            "--webhook-secret", help="Show what signs the cluster's webhooks, only."
        ),
    ] = False,
) -> None:
    """Show every setting, its value (secrets masked) and where it came from."""
    from corral.settings import load

    if webhook_secret:
        with connect(ctx) as client:
            typer.echo(client.webhook_secret())
        return

    try:
        settings = load()
    except SettingsError as error:
        typer.echo(error.message, err=True)
        raise typer.Exit(2) from None
    if json:
        rows = [asdict(row) for row in settings.rows()]
        answer = {"settings": rows, "unknown": settings.unknown}
        typer.echo(json_text.dumps(answer, indent=2))
    else:
        _print_table(settings)


def _print_table(settings: Settings) -> None:
    table = Table("setting", "value", "where from", box=None, header_style="bold")
    for column in table.columns:
        column.overflow = "fold"
    for row in settings.rows():
        style = "dim" if row.origin == "default" else ""
        table.add_row(row.name, escape(_say(row)), escape(row.origin), style=style)
    console = Console()
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    console.print(table)
    for warning in settings.unknown:
        typer.echo(f"warning: {warning}", err=True)


def _say(row: Row) -> str:
    """A value as one would write it in `.env`."""
    if row.value is None:
        return ""
    if isinstance(row.value, bool):
        return str(row.value).lower()
    if isinstance(row.value, float):
        return f"{row.value:.12g}"
    return str(row.value)


app_command = config


# `corral version`: which Corral this is. Asks no manager.


def version(as_json: output.JsonFlag = False) -> None:
    """Show the version of this installation."""
    if as_json:
        output.echo_json(
            {
                "version": __version__,
                "python": platform.python_version(),
                "platform": platform.platform(),
            }
        )
    else:
        typer.echo(f"corral {__version__}")
