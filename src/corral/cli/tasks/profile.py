"""`corral profile TYPE`: run a task under a profiler and show where its time went."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options import arguments
from corral.cli.options.arguments import takes
from corral.cli.options.connect import connect
from corral.cli.tasks.run import follow
from corral.cli.terminal import output
from corral.core.tasks.options import MEMORY, PYTHON, TORCH

if TYPE_CHECKING:
    from corral.client import Client, TaskOptions

_TEXT = "profile.txt"


@takes(options=arguments.task_group)
def profile(
    ctx: typer.Context,
    task_type: Annotated[
        str, typer.Argument(metavar="TYPE", help="A job type of a worker.")
    ],
    text: Annotated[
        str | None, typer.Argument(metavar="[JSON|@FILE|-]", help="Its input.")
    ] = None,
    torch: Annotated[
        bool, typer.Option("--torch", help="With PyTorch's profiler, and a trace.")
    ] = False,
    heap: Annotated[
        bool, typer.Option("--heap", help="What memory it takes, line by line.")
    ] = False,
    to: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also put the report's files there."),
    ] = None,
    as_json: output.JsonFlag = False,
    *,
    options: TaskOptions,
) -> None:
    """Run a task under a profiler, and print the report.

    The report stays with the task: 'corral artifacts get ID' fetches it, with pages to
    click through. The exit code is 1 when the task fails.
    """
    from corral.client import result_of

    if torch and heap:
        raise typer.BadParameter("--torch or --heap, not both")
    options["profile"] = TORCH if torch else MEMORY if heap else PYTHON
    value = arguments.read_json(text)
    with connect(ctx) as client:
        task = follow(client, client.submit(task_type, value, **options).task_id)
        found = client.artifacts(task.task_id)
        names = [a.name for a in found.artifacts]
        if to is not None and names:
            client.download_artifacts(task.task_id, to=to)
        if as_json:
            told = {"task_id": task.task_id, "status": task.status, "files": names}
            output.echo_json({**told, "duration": task.duration})
        elif _TEXT in names:
            typer.echo(_read(client, task.task_id))
        if names and to is None and not as_json:
            output.hint(f"{', '.join(names)}: 'corral artifacts get {task.task_id}'")
    if not names:
        output.hint(f"Task {task.task_id} left no report; 'corral logs' may say why.")
    result_of(task)


def _read(client: Client, task_id: str) -> str:
    """The report for the terminal; user code may have named what is in it."""
    with tempfile.TemporaryDirectory() as folder:
        client.download_artifacts(task_id, _TEXT, to=Path(folder))
        text = (Path(folder) / _TEXT).read_text(encoding="utf-8", errors="replace")
    return "".join(c for c in text if c.isprintable() or c == "\n")
