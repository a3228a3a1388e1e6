"""How a model chooses its words: options of the commands that have one write."""

from __future__ import annotations

from typing import Annotated, Any

import typer

MaxTokens = Annotated[
    int | None, typer.Option(metavar="N", help="Tokens it writes at most.")
]
Temperature = Annotated[
    float | None,
    typer.Option(metavar="T", help="0 takes the likeliest token; higher dares more."),
]
TopP = Annotated[
    float | None,
    typer.Option(metavar="P", help="Only the likeliest tokens, of this share."),
]
TopK = Annotated[
    int | None, typer.Option(metavar="K", help="Only the K likeliest; 0 is all.")
]
Penalty = Annotated[
    float | None,
    typer.Option(metavar="R", help="Above 1, what was said is said less again."),
]
Seed = Annotated[
    int | None, typer.Option(metavar="N", help="The same seed, the same text.")
]
Stop = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="It ends before this; may be repeated."),
]


def options(
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    top_k: TopK = None,
    repetition_penalty: Penalty = None,
    seed: Seed = None,
    stop: Stop = None,
) -> dict[str, Any]:
    """What was given, as tasks of type generate take it; for `takes`."""
    told = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "repetition_penalty": repetition_penalty,
        "seed": seed,
        "stop": stop or None,
    }
    given = {name: value for name, value in told.items() if value is not None}
    if given:
        _check(given)
    return given


def _check(given: dict[str, Any]) -> None:
    """Say what is out of bounds here, not after a model was loaded for it."""
    from corral.worker.inference.errors import RequestRefused
    from corral.worker.inference.kind import ModelKind, RequestedKind
    from corral.worker.inference.request import read_request

    for name, value in given.items():
        hint = f"--{name.replace('_', '-')}"
        if value != value:
            raise typer.BadParameter("it must be a number", param_hint=hint)
        try:
            read_request(
                RequestedKind(ModelKind.GENERATE), {"prompt": "x", name: value}
            )
        except RequestRefused as error:
            said = str(error).partition(": ")[2]
            raise typer.BadParameter(said, param_hint=hint) from None
