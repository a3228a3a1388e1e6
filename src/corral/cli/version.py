"""`corral version`: which Corral this is. Asks no manager."""

from __future__ import annotations

import platform

import typer

from corral import __version__
from corral.cli import show


def version(as_json: show.JsonFlag = False) -> None:
    """Show the version of this installation."""
    if as_json:
        show.echo_json(
            {
                "version": __version__,
                "python": platform.python_version(),
                "platform": platform.platform(),
            }
        )
    else:
        typer.echo(f"corral {__version__}")
