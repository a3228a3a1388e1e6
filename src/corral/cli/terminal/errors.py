"""The one place that turns an exception into a line on stderr and an exit code."""

from __future__ import annotations

import sys
import traceback
from types import TracebackType

import typer

from corral.errors import CorralError, SettingsError, Unauthenticated, Unavailable

FAILED, USAGE, UNREACHABLE = 1, 2, 3


def exit_code_of(error: BaseException) -> int:
    if isinstance(error, Unavailable):
        return UNREACHABLE
    return USAGE if isinstance(error, SettingsError) else FAILED


def report(error: CorralError | OSError, *, is_debug: bool = False) -> int:
    """Tell the user what went wrong; returns the exit code."""
    if is_debug:
        traceback.print_exception(error)
    typer.echo(f"Error: {one_line(_say(error))}", err=True)
    return exit_code_of(error)


def _say(error: CorralError | OSError) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror}: {error.filename}" if error.filename else str(error)
    if isinstance(error, Unauthenticated):
        return (
            f"{error.message} (set CORRAL_API_KEY, or --home to the data folder "
            "whose admin.key you may read)"
        )
    return error.message


def one_line(text: str) -> str:
    """`text` without line breaks and without anything that moves the cursor."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))


def last_resort(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """For faults nobody foresaw; installed as the interpreter's hook."""
    said = one_line(f"{kind.__name__}: {error}")
    sys.stderr.write(
        f"Error: a fault inside Corral: {said} (--debug shows the traceback)\n"
    )
