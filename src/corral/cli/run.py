"""`corral run`: submit a task, follow it, print its result."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corral.cli import argument, progress, script, show
from corral.cli.connect import connect
from corral.cli.group import takes
from corral.core.script import JOB_TYPE

if TYPE_CHECKING:
    from corral.client import Client, TaskDetail, TaskOptions

_LOOK_S = 1.0


@takes(options=argument.task_group, code=script.source, given=script.rules)
def run(
    ctx: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="TYPE [JSON|@FILE|-] | -- COMMAND...",
            help="A job type and its input; or, after --, a command to run.",
        ),
    ],
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Print the id and do not wait.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the whole task, not only its result.")
    ] = False,
    *,
    options: TaskOptions,
    code: script.Source,
    given: script.Rules,
) -> None:
    """Run a task and print its result, or a command and see it print.

    A task: `corral run echo '{"message": "hi"}'` prints the result as JSON and exits
    1 when it fails. A command: `corral run --dir . -- python train.py` prints what it
    prints and exits as it does, or with 125 when it could not be run.
    """
    is_script = code.is_given or bool(given.told) or _is_command()
    with connect(ctx) as client:
        if is_script:
            value: Any = script.payload(client, words, code, given)
            submitted = client.submit(JOB_TYPE, value, **options)
        else:
            task_type, value = _task(words)
            submitted = client.submit(task_type, value, **options)
        if detach:
            _print_id(submitted.task_id, as_json)
            return
        if is_script and not as_json:
            script.leave(script.follow(client, submitted.task_id))
            return
        task = follow(client, submitted.task_id)
    _print_outcome(task, as_json)


def _is_command() -> bool:
    """`corral run -- COMMAND`: the two dashes say that no type is meant."""
    return "--" in sys.argv


def _task(words: list[str]) -> tuple[str, Any]:
    if len(words) > 2:
        raise typer.BadParameter(
            "a task is TYPE and one JSON text; a command follows --",
            param_hint="TYPE",
        )
    return words[0], argument.read_json(words[1] if len(words) > 1 else None)


def _print_id(task_id: str, as_json: bool) -> None:
    if as_json:
        show.echo_json({"task_id": task_id})
    else:
        typer.echo(task_id)


def follow(client: Client, task_id: str) -> TaskDetail:
    """The task when it has ended; on a terminal it is seen how far it is."""
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
