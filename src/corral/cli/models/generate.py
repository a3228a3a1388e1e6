"""`corral generate` and `corral embed`: have a model write, or make vectors."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from corral.cli.models import answer, sampling
from corral.cli.models.answer import waiting
from corral.cli.options.arguments import ModelName, takes
from corral.cli.options.connect import connect
from corral.cli.terminal import output
from corral.errors import TaskFailed

Prompt = Annotated[
    str | None,
    typer.Argument(metavar="PROMPT|-", help="What it goes on from; - is stdin."),
]
PromptFile = Annotated[
    Path | None,
    typer.Option("--file", "-f", metavar="FILE", help="Read the prompt from it."),
]
System = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="How to answer; the prompt is then a message."),
]
_EMBED = "embed"
Texts = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT...|-", help="Texts; - is stdin, a text a line."),
]


@takes(how=sampling.options)
def generate(
    ctx: typer.Context,
    model: ModelName,
    prompt: Prompt = None,
    file: PromptFile = None,
    system: System = None,
    no_stream: Annotated[
        bool, typer.Option("--no-stream", help="Print the text once it is whole.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON value when it is done.")
    ] = False,
    *,
    how: dict[str, Any],
) -> None:
    """Have a model write, and see the text as it comes.

    `corral generate llama "Once upon a time"` goes on from that text. Ctrl-C stops
    the work.
    """
    text = _prompt(prompt, file)
    payload = {**_asked(text, system), **how}
    with connect(ctx) as client:
        answer.check(client, model)
        told = None if no_stream or as_json else answer.ShownText(answer.write)
        done = answer.ask(client, model, payload, told)
    if as_json:
        output.echo_json(asdict(done))
        return
    if told is None:
        answer.write(done.text)
    answer.end_line(done.text)
    answer.warn_of_length(done)


def _asked(text: str, system: str | None) -> dict[str, Any]:
    if system is None:
        return {"prompt": text}
    turns = [("system", system), ("user", text)]
    return {"messages": [{"role": role, "content": said} for role, said in turns]}


def _prompt(given: str | None, file: Path | None) -> str:
    if given is not None and file is not None:
        raise typer.BadParameter("give it, or a file, not both", param_hint="PROMPT")
    if file is not None:
        text = _read_file(file)
    elif given == "-" or (given is None and not sys.stdin.isatty()):
        text = _read_stdin()
    else:
        text = given or ""
    if not text:
        raise typer.BadParameter(
            "it is empty: give a text, - or --file", param_hint="PROMPT"
        )
    return text


def _read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, ValueError) as error:
        raise typer.BadParameter(
            f"cannot read {path}: {error}", param_hint="--file"
        ) from None


def _read_stdin() -> str:
    try:
        return sys.stdin.read().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(
            f"stdin is not text: {error}", param_hint="PROMPT"
        ) from None


# `corral embed MODEL TEXT...`: texts as vectors.


def embed(
    ctx: typer.Context,
    model: ModelName,
    texts: Texts = None,
    as_json: output.JsonFlag = False,
) -> None:
    """Print the vector of each text on a line of its own, as JSON.

    With --json the whole answer is one value: embeddings, dimensions, tokens.
    """
    payload = {"text": _read(texts)}
    with connect(ctx) as client:
        answer.check(client, model, _EMBED)
        with answer.wanted(client) as task_id:
            client.submit(_EMBED, payload, model_name=model, task_id=task_id)
            with waiting(client, task_id, model):
                told = client.result(task_id)
    vectors = told.get("embeddings") if isinstance(told, dict) else None
    if not isinstance(vectors, list):
        said = f"task {task_id}: the worker's answer has no embeddings"
        raise TaskFailed(said, task_id=task_id, kind="bad_result")
    if as_json:
        output.echo_json(told)
        return
    for vector in vectors:
        output.echo_json(vector, indent=None)


def _read(texts: list[str] | None) -> list[str]:
    if texts == ["-"] or (not texts and not sys.stdin.isatty()):
        try:
            texts = sys.stdin.read().splitlines()
        except UnicodeDecodeError as error:
            raise typer.BadParameter(
                f"stdin is not text: {error}", param_hint="TEXT"
            ) from None
    if not texts:
        raise typer.BadParameter("give one at least, or -", param_hint="TEXT")
    return texts
