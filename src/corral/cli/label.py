"""`corral label` and `corral taint`: what tasks may ask of a node, or must tolerate."""

from __future__ import annotations

from typing import Annotated

import typer

from corral.cli import show
from corral.cli.connect import connect
from corral.cli.cordon import NodeArgument


def label(
    ctx: typer.Context,
    node: NodeArgument,
    words: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE|KEY-", help="A label to set, or to remove."),
    ],
    as_json: show.JsonFlag = False,
) -> None:
    """Set labels of a node, or remove them: `corral label NODE rack=a old-`."""
    with connect(ctx) as client:
        found = client.change_node(node, labels=read(words, bare=None))
    if as_json:
        show.echo_json(found.to_dict())
        return
    for key, value in sorted(found.labels.items()):
        typer.echo(f"{key}={value}")


def taint(
    ctx: typer.Context,
    node: NodeArgument,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY[=VALUE]|KEY-", help="A taint to set, or to remove."
        ),
    ],
    as_json: show.JsonFlag = False,
) -> None:
    """Keep tasks away that do not tolerate it: `corral taint NODE spot old-`."""
    with connect(ctx) as client:
        found = client.change_node(node, taints=read(words, bare=""))
    if as_json:
        show.echo_json(found.to_dict())
        return
    for word in found.taints:
        typer.echo(word)


def read(words: list[str], bare: str | None) -> dict[str, str | None]:
    """What each key is to be; None to remove it. `bare` is the value of a key alone.

    Raises:
        typer.BadParameter: a key alone, where it needs a value.
    """
    said: dict[str, str | None] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if equals and value:
            said[key] = value
        elif not equals and word.endswith("-"):
            said[word[:-1]] = None
        elif not equals and bare is not None:
            said[key] = bare
        else:
            raise typer.BadParameter(f"{word!r} is neither KEY=VALUE nor KEY-")
    return said
