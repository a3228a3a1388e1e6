"""`corral top`: watch the cluster and steer it, or take one picture of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli import show
from corral.cli.connect import FIRST_S, TOTAL_S, reach_of
from corral.cli.top import picture, snapshot
from corral.errors import BadRequest

if TYPE_CHECKING:
    from corral.client import Client

_TIMEOUT_S = 5.0


def top(
    ctx: typer.Context,
    once: Annotated[
        bool, typer.Option("--once", help="Print one picture, and end.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --once: print JSON.")
    ] = False,
) -> None:
    """Watch nodes, GPUs, workers and tasks; keys sort, filter, cancel and explain."""
    from corral.client import Client, Patience

    if as_json and not once:
        raise typer.BadParameter("only with --once", param_hint="--json")
    reach = reach_of(ctx)
    # It looks again by itself: to wait in between would only freeze the picture.
    patience = Patience(total_s=0.0, first_s=FIRST_S)
    with Client(
        reach.url, home=reach.home, patience=patience, timeout_s=_TIMEOUT_S
    ) as client:
        first = picture.read(client)
        if once:
            show.echo_json(snapshot.plain(first)) if as_json else snapshot.echo(first)
            return
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise BadRequest("this needs a terminal; --once prints one picture")
        patient = Client(
            reach.url, home=reach.home, patience=Patience(TOTAL_S, FIRST_S)
        )
        with patient:
            _show(client, patient, first)


def _show(looking: Client, patient: Client, first: picture.Picture) -> None:
    from corral.cli.top.app import Top

    fault = Top(looking, patient, first).run()
    if fault is not None:
        raise fault
