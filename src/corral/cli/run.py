"""`corral run`: submit a task, follow it, print its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli import argument, progress, show
from corral.cli.connect import connect

if TYPE_CHECKING:
    from corral.client import Client, TaskDetail

_LOOK_S = 1.0


def run(
    ctx: typer.Context,
    task_type: argument.TypeArgument,
    parameters: argument.ParametersArgument = None,
    priority: argument.Priority = None,
    timeout: argument.Timeout = None,
    retries: argument.Retries = None,
    label: argument.Labels = None,
    model: argument.Model = None,
    run_after: argument.RunAfter = None,
    deadline: argument.Deadline = None,
    depends_on: argument.DependsOn = None,
    idempotency_key: argument.IdempotencyKey = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Print the id and do not wait.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the whole task, not only its result.")
    ] = False,
) -> None:
    """Run a task and print its result as JSON; exits 1 when it fails."""
    options = argument.task_options(
        priority=priority,
        timeout=timeout,
        retries=retries,
        label=label,
        model_name=model,
        run_after=run_after,
        deadline=deadline,
        depends_on=depends_on,
        idempotency_key=idempotency_key,
    )
    value = argument.read_json(parameters)
    with connect(ctx) as client:
        submitted = client.submit(task_type, value, **options)
        if detach:
            _print_id(submitted.task_id, as_json)
            return
        task = _follow(client, submitted.task_id)
    _print_outcome(task, as_json)


def _print_id(task_id: str, as_json: bool) -> None:
    if as_json:
        show.echo_json({"task_id": task_id})
    else:
        typer.echo(task_id)


def _follow(client: Client, task_id: str) -> TaskDetail:
    try:
        if not progress.is_live():
            return client.wait(task_id)
        with progress.spinner(f"{task_id} queued") as say:
            while True:
                task = client.get_task(task_id, wait_s=_LOOK_S)
                if task.is_terminal:
                    return task
                say(_describe(task))
    except KeyboardInterrupt:
        show.hint(
            f"Task {task_id} goes on: 'corral wait {task_id}' waits for it, "
            f"'corral cancel {task_id}' stops it."
        )
        raise


def _describe(task: TaskDetail) -> str:
    words = [task.task_id, task.status]
    if task.waiting:
        words.append(f"({task.waiting.text})")
    if task.progress and task.progress.fraction is not None:
        words.append(f"{task.progress.fraction:.0%}")
    if task.progress and task.progress.message:
        words.append(task.progress.message)
    return " ".join(words)


def _print_outcome(task: TaskDetail, as_json: bool) -> None:
    from corral.client import result_of

    if as_json:
        show.echo_json(task.to_dict())
        result_of(task)
        return
    if task.error and task.error.traceback:
        show.hint(f"'corral task {task.task_id}' shows the traceback.")
    show.echo_json(result_of(task), indent=None)
