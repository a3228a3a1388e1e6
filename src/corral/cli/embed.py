"""`corral embed MODEL TEXT...`: texts as vectors."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from corral.cli import answer, show
from corral.cli.complete import ModelName
from corral.cli.connect import connect
from corral.cli.model_wait import waiting
from corral.errors import TaskFailed

_EMBED = "embed"

Texts = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT...|-", help="Texts; - is stdin, a text a line."),
]


def embed(
    ctx: typer.Context,
    model: ModelName,
    texts: Texts = None,
    as_json: show.JsonFlag = False,
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
        show.echo_json(told)
        return
    for vector in vectors:
        show.echo_json(vector, indent=None)


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
