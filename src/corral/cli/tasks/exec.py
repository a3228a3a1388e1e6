"""`corral exec ID -- COMMAND...`: look into a script while it runs."""

from __future__ import annotations

import codecs
import contextlib
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options import arguments
from corral.cli.options.connect import connect
from corral.cli.options.script import OURS
from corral.cli.terminal import errors, output
from corral.errors import CorralError

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire.output import ExecEnd


def run_beside(
    ctx: typer.Context,
    task_id: arguments.TaskArgument,
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- COMMAND...", help="The command, after --."),
    ],
    is_raw: output.RawFlag = False,
) -> None:
    """Run a command in the environment of a running script, and see what it prints.

    It has no input and no terminal. The exit code is the command's, or 125 when it
    could not be run.
    """
    with connect(ctx) as client:
        try:
            end = _follow(client, task_id, command, is_raw)
        except CorralError as error:
            errors.report(error)
            raise typer.Exit(OURS) from None
    if end.error:
        output.hint(f"Error: {errors.one_line(end.error)}")
    raise typer.Exit(OURS if end.exit_code is None else end.exit_code)


def _follow(client: Client, task_id: str, command: list[str], is_raw: bool) -> ExecEnd:
    from corral.wire.output import ExecEnd

    made = codecs.getincrementaldecoder("utf-8")
    texts = {name: made("backslashreplace") for name in ("stdout", "stderr")}
    run = client.start_exec(task_id, command)
    try:
        for said in client.exec_output(run):
            if isinstance(said, ExecEnd):
                return said
            target = sys.stderr if said.stream == "stderr" else sys.stdout
            if is_raw or not target.isatty():
                # Bytes, as they came: a file may pass here.
                target.buffer.write(said.data)
                target.buffer.flush()
            else:
                text = texts[said.stream].decode(said.data)
                target.write(output.visible(text, target))
                target.flush()
    except (KeyboardInterrupt, BrokenPipeError):
        with contextlib.suppress(CorralError):
            client.stop_exec(run)
        raise
    return ExecEnd(error="the command's output ended without its exit code")
