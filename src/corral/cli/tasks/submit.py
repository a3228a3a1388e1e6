"""`corral submit`: hand over one task, or a file of them, without waiting."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from corral.cli.options import arguments
from corral.cli.options.arguments import takes
from corral.cli.options.connect import connect
from corral.cli.tasks import array
from corral.cli.terminal import errors, output, progress

if TYPE_CHECKING:
    from corral.client import TaskOptions


@takes(task=arguments.task_group, asked=array.many)
def submit(
    ctx: typer.Context,
    task_type: Annotated[
        str | None, typer.Argument(metavar="[TYPE]", help="The job type, like echo.")
    ] = None,
    parameters: arguments.ParametersArgument = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE|-",
            help="Many tasks, one JSON a line: whole tasks, or parameters of TYPE.",
        ),
    ] = None,
    as_json: output.JsonFlag = False,
    *,
    task: TaskOptions,
    asked: array.ArrayOptions,
) -> None:
    """Submit one task, or many, and print the ids.

    Many are the lines of a --file, the numbers of an --array or the rows of a --sweep.
    """
    options: dict[str, Any] = dict(task)
    if file is not None:
        if parameters is not None or "idempotency_key" in task or asked.is_given:
            raise typer.BadParameter(
                "it goes with neither parameters nor --idempotency-key, --array or "
                "--sweep",
                param_hint="--file",
            )
        _submit_file(ctx, file, task_type, options, as_json)
        return
    if task_type is None:
        raise typer.BadParameter("name one, or give --file", param_hint="TYPE")
    value = arguments.read_json(parameters)
    if asked.is_given:
        with connect(ctx) as client:
            array.submit(client, asked, task_type, value, options, as_json)
        return
    _submit_one(ctx, {"task_type": task_type, **options}, value, as_json)


def _submit_one(
    ctx: typer.Context, task: dict[str, Any], parameters: Any, as_json: bool
) -> None:
    with connect(ctx) as client:
        submitted = client.submit(task.pop("task_type"), parameters, **task)
    if as_json:
        output.echo_json(submitted.to_dict())
    else:
        typer.echo(submitted.task_id)


def _submit_file(
    ctx: typer.Context,
    file: str,
    task_type: str | None,
    options: dict[str, Any],
    as_json: bool,
) -> None:
    numbers, tasks = _read_tasks(file, task_type, options)
    with connect(ctx) as client, progress.bar("submitting") as advance:
        batch = client.submit_batch(tasks, on_progress=advance)
    if as_json:
        output.echo_json(batch.to_dict())
    else:
        for task_id in batch.task_ids:
            if task_id is not None:
                typer.echo(task_id)
    for refusal in batch.errors:
        said = errors.one_line(refusal.message)
        output.hint(f"Error: line {numbers[refusal.index]}: {said}")
    if batch.errors:
        raise typer.Exit(errors.FAILED)


def _read_tasks(
    file: str, task_type: str | None, options: dict[str, Any]
) -> tuple[list[int], list[dict[str, Any]]]:
    """Line numbers and tasks; a line that is not JSON stops before any is sent."""
    numbers, tasks = [], []
    with _open(file) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            value = arguments.parse_json(line, "--file", f"line {number}: ")
            numbers.append(number)
            tasks.append(_as_task(value, task_type, options, number))
    return numbers, tasks


def _as_task(
    value: Any, task_type: str | None, options: dict[str, Any], number: int
) -> dict[str, Any]:
    if task_type is not None:
        return {**options, "task_type": task_type, "parameters": value}
    if not isinstance(value, dict):
        raise typer.BadParameter(
            f'line {number}: without TYPE a line reads {{"task_type": ...}}',
            param_hint="--file",
        )
    return {**options, **value}


@contextmanager
def _open(file: str) -> Iterator[TextIO]:
    if file == "-":
        yield sys.stdin
        return
    with Path(file).open(encoding="utf-8") as lines:
        yield lines
