"""`corral token create`: tokens with which other machines join."""

from __future__ import annotations

from typing import Annotated

import typer

from corral.cli import show
from corral.cli.connect import connect

app = typer.Typer(no_args_is_help=True, help="Make join tokens for nodes.")


@app.callback()
def token() -> None:
    """Make join tokens for nodes."""


@app.command()
def create(
    ctx: typer.Context,
    ttl: Annotated[
        float | None, typer.Option(metavar="S", help="Seconds it is good for.", min=1)
    ] = None,
    uses: Annotated[
        int | None, typer.Option(help="How many machines may use it.", min=1)
    ] = None,
    as_json: show.JsonFlag = False,
) -> None:
    """Make a token for 'corral join', and print it."""
    with connect(ctx) as client:
        made = client.join_token(ttl_s=ttl, uses=uses)
    if as_json:
        show.echo_json(made.to_dict())
        return
    typer.echo(made.token)
    until = f", until {show.cell(made.expires_at)}" if made.expires_at else ""
    show.hint(f"On the other machine{until}: corral join {client.url} --token TOKEN")
