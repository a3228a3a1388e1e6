"""`corral run`: submit a task, follow it, print what it emits and its result."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corral.cli.options import arguments, script
from corral.cli.options.arguments import takes
from corral.cli.options.connect import connect
from corral.cli.options.script import OURS
from corral.cli.tasks import array
from corral.cli.tasks.logs import show_all
from corral.cli.tasks.wait_cancel_requeue import await_all
from corral.cli.terminal import errors, output, progress
from corral.cli.words import task as task_words
from corral.core.tasks.script import JOB_TYPE

if TYPE_CHECKING:
    from corral.client import Client, LogLine, TaskDetail, TaskOptions

_LOOK_S = 1.0
_AT_ONCE_S = 0.25
"""So long the request itself waits, before anybody is shown that it does."""


@takes(
    options=arguments.task_group,
    code=script.source,
    given=script.rules,
    asked=array.many,
)
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
    is_streamed: Annotated[
        bool, typer.Option("--stream", help="Print what the task emits, as it does.")
    ] = False,
    is_raw: output.RawFlag = False,
    *,
    options: TaskOptions,
    code: script.ScriptSource,
    given: script.Rules,
    asked: array.ArrayOptions,
) -> None:
    """Run a task and print its result, or a command and see it print.

    A task: `corral run echo '{"message": "hi"}'` prints the result as JSON and exits
    1 when it fails. A command: `corral run --dir . -- python train.py` prints what it
    prints and exits as it does, or with 125 when it could not be run.
    """
    is_script = code.is_given or bool(given.told) or is_command()
    if is_streamed and (is_script or asked.is_given or detach or as_json):
        raise typer.BadParameter("only for one task of a type", param_hint="--stream")
    with connect(ctx) as client:
        task_type: str = JOB_TYPE
        if is_script:
            value: Any = script.payload(client, words, code, given, options)
        else:
            task_type, value = read_task(words)
        if asked.is_given:
            many = dict(options)
            if detach or asked.is_dry:
                array.submit(client, asked, task_type, value, many, as_json)
            else:
                _run_all(client, array.make(asked, task_type, value, many), as_json)
            return
        is_followed = is_streamed or (is_script and not as_json)
        if not detach and not is_followed:
            _print_outcome(_await(client, task_type, value, options), as_json)
            return
        submitted = client.submit(task_type, value, **options)
        if detach:
            _print_id(submitted.task_id, as_json)
        elif is_streamed:
            _check(follow_stream(client, submitted.task_id, is_raw=is_raw))
        else:
            task = follow_script(client, submitted.task_id, is_raw=is_raw)
            exit_as_script(task, is_raw=is_raw)


def _run_all(client: Client, made: array.TaskArray, as_json: bool) -> None:
    batch = array.send(client, made)
    output.hint(f"array {made.id}: {len(made.tasks)} tasks")
    if batch.errors:
        array.show_sent(made, batch, as_json)
    ids = [task_id for task_id in batch.task_ids if task_id is not None]
    array.leave(made.id, await_all(client, ids, None), as_json)


def is_command() -> bool:
    """`corral run -- COMMAND`: the two dashes say that no type is meant."""
    return "--" in sys.argv


def read_task(words: list[str]) -> tuple[str, Any]:
    """A type and its input, where no command is meant."""
    if len(words) > 2:
        raise typer.BadParameter(
            "a task is TYPE and one JSON text; a command follows --",
            param_hint="TYPE",
        )
    return words[0], arguments.read_json(words[1] if len(words) > 1 else None)


def _print_id(task_id: str, as_json: bool) -> None:
    if as_json:
        output.echo_json({"task_id": task_id})
    else:
        typer.echo(task_id)


def _await(
    client: Client, task_type: str, value: Any, options: TaskOptions
) -> TaskDetail:
    """The task when it has ended; most do within the request that brings them."""
    task = client.submit_and_wait(task_type, value, wait_s=_AT_ONCE_S, **options)
    return task if task.is_terminal else follow(client, task.task_id)


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
        output.hint(
            f"Task {task_id} goes on: 'corral wait {task_id}' waits for it, "
            f"'corral cancel {task_id}' stops it."
        )
        raise


def _describe(task: TaskDetail) -> str:
    why = task_words.waits(task)
    words = (task.task_id, task.status, why and f"({why})", task_words.progress(task))
    return " ".join(word for word in words if word)


def _check(task: TaskDetail) -> None:
    """Raises TaskFailed when it has not completed."""
    from corral.client import result_of

    result_of(task)


def _print_outcome(task: TaskDetail, as_json: bool) -> None:
    from corral.client import result_of

    if as_json:
        output.echo_json(task.to_dict())
        result_of(task)
        return
    if task.error and task.error.traceback:
        output.hint(f"'corral task {task.task_id}' shows the traceback.")
    output.echo_json(result_of(task), indent=None)


def follow_script(client: Client, task_id: str, *, is_raw: bool = False) -> TaskDetail:
    """Print what the script prints, as it prints it; the task when it has ended."""

    def write(line: LogLine) -> None:
        target = sys.stderr if line.stream == "stderr" else sys.stdout
        target.write(f"{output.visible(line.text, target, is_raw=is_raw)}\n")
        target.flush()

    try:
        show_all(client.follow(task_id), write)
        return client.wait(task_id)
    except KeyboardInterrupt:
        output.hint(
            f"Task {task_id} goes on: 'corral logs -f {task_id}' follows it, "
            f"'corral cancel {task_id}' stops it."
        )
        raise


def exit_as_script(task: TaskDetail, *, is_raw: bool = False) -> None:
    """End as the script ended; with 125 when it never came to run."""
    result = task.result if isinstance(task.result, dict) else {}
    if task.is_completed:
        return
    said = task.error.message if task.error else task.status
    output.hint(f"Error: {errors.one_line(said)}")
    if printed := result.get("output"):
        text = str(printed).rstrip()
        output.hint(output.visible(text, sys.stderr, is_raw=is_raw))
    code = result.get("exit_code")
    raise typer.Exit(code if isinstance(code, int) and 0 < code < 256 else OURS)


def follow_stream(client: Client, task_id: str, *, is_raw: bool = False) -> TaskDetail:
    """Print its output to the end; the ended task.

    Text stands as it is, also where it is the `text` of a piece; other pieces stand on
    lines of their own, as JSON.
    """
    last, is_at_start = 0, True
    for piece in client.stream(task_id):
        if piece.number <= last:
            output.hint("The attempt was lost; another begins from the start:")
        last = piece.number
        text = _text(piece.value)
        if text is None:
            sys.stdout.write("" if is_at_start else "\n")
            output.echo_json(piece.value, indent=None)
            is_at_start = True
            continue
        sys.stdout.write(output.visible(text, sys.stdout, is_raw=is_raw))
        sys.stdout.flush()
        is_at_start = text.endswith("\n") if text else is_at_start
    if not is_at_start:
        sys.stdout.write("\n")
    return client.wait(task_id)


def _text(value: Any) -> str | None:
    if isinstance(value, dict):
        value = value.get("text")
    return value if isinstance(value, str) else None
