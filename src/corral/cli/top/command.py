"""`corral top`: watch the cluster and steer it, or take one picture of it."""

from __future__ import annotations

import sys
from contextlib import ExitStack
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
    hasty = Patience(total_s=0.0, first_s=FIRST_S)
    client = Client(reach.url, home=reach.home, patience=hasty, timeout_s=_TIMEOUT_S)
    with ExitStack() as at_end:
        at_end.enter_context(client)
        first = picture.read(client)
        if once:
            show.echo_json(snapshot.plain(first)) if as_json else snapshot.echo(first)
            return
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise BadRequest("this needs a terminal; --once prints one picture")
        # Threads may wait for an answer until the very end of the process.
        at_end.pop_all()
    lasting = Patience(total_s=TOTAL_S, first_s=FIRST_S)
    _show(client, Client(reach.url, home=reach.home, patience=lasting), first)


def _show(looking: Client, patient: Client, first: picture.Picture) -> None:
    from corral.cli.top.app import Top

    fault = Top(looking, patient, first).run()
    if fault is not None:
        raise fault
