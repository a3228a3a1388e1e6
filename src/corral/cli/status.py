"""`corral status`: the cluster on one screen, once or kept up to date."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli import overview, show
from corral.cli.connect import FIRST_S, connect, reach_of
from corral.cli.overview import Overview
from corral.errors import AuthError, CorralError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from corral.client import Client, ClusterStatus

_EVERY_S = 2.0
_SHORTEST_S = 0.2
_INTERRUPTED = 130


def status(
    ctx: typer.Context,
    seconds: Annotated[
        float | None,
        typer.Argument(metavar="[SECONDS]", help="With --watch: how often; else 2."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep it up to date until Ctrl-C.")
    ] = False,
    workers: Annotated[
        bool, typer.Option("--workers", help="Show the workers of each node.")
    ] = False,
    as_json: show.JsonFlag = False,
) -> None:
    """Show how the cluster does: health, nodes, workers and tasks."""
    if seconds is not None and not watch:
        raise typer.BadParameter("only with --watch", param_hint="SECONDS")
    if watch:
        every_s = max(_EVERY_S if seconds is None else seconds, _SHORTEST_S)
        _watch(ctx, every_s, with_workers=workers, as_json=as_json)
        return
    with connect(ctx) as client:
        told = overview.read(client)
    _print(told, with_workers=workers, as_json=as_json)
    if not as_json:
        _advise(told.status)


def _print(told: Overview, *, with_workers: bool, as_json: bool) -> None:
    if as_json:
        show.echo_json(overview.to_plain(told, with_workers=with_workers))
        return
    for number, grid in enumerate(overview.grids(told, with_workers=with_workers)):
        if number:
            typer.echo()
        show.print_grid(grid)


def _watch(
    ctx: typer.Context, every_s: float, *, with_workers: bool, as_json: bool
) -> None:
    """Look again and again; a manager that is away for a while is said to be."""
    from corral.client import Client, Patience

    reach = reach_of(ctx)
    # It looks again by itself: to wait in between would only freeze the picture.
    patience = Patience(total_s=0.0, first_s=FIRST_S)
    with Client(reach.url, home=reach.home, patience=patience) as client:
        last = overview.read(client)
        try:
            if as_json or not sys.stdout.isatty():
                _follow(client, last, every_s, with_workers, as_json)
            else:
                with _screen() as draw:
                    _redraw(client, last, every_s, draw, with_workers)
        except KeyboardInterrupt:
            raise typer.Exit(_INTERRUPTED) from None


def _follow(
    client: Client, last: Overview, every_s: float, with_workers: bool, as_json: bool
) -> None:
    """Picture after picture, for a pipe."""
    _print(last, with_workers=with_workers, as_json=as_json)
    while True:
        time.sleep(every_s)
        told, fault = _look(client)
        if told is None:
            show.hint(fault)
            continue
        if not as_json:
            typer.echo()
        _print(told, with_workers=with_workers, as_json=as_json)


def _redraw(
    client: Client,
    last: Overview,
    every_s: float,
    draw: Callable[[RenderableType], None],
    with_workers: bool,
) -> None:
    from rich.console import Group
    from rich.text import Text

    told: Overview | None = last
    fault, seen_at = "", datetime.now().astimezone()
    while True:
        if told is not None:
            last, seen_at = told, datetime.now().astimezone()
        head = Text(f"{seen_at:%H:%M:%S}, every {every_s:g} s, Ctrl-C ends it", "dim")
        if told is None:
            head = Text(f"as of {seen_at:%H:%M:%S}; now: {fault}", "bold red")
        grids = overview.grids(last, with_workers=with_workers)
        parts = [part for grid in grids for part in (Text(), grid)]
        draw(Group(head, *parts))
        time.sleep(every_s)
        told, fault = _look(client)


def _look(client: Client) -> tuple[Overview | None, str]:
    """The cluster now, or why it cannot be seen; a wrong key stays wrong."""
    try:
        return overview.read(client), ""
    except AuthError:
        raise
    except CorralError as error:
        # What to do about it is no news to whoever watches.
        return None, error.message.partition(": ")[0]


@contextlib.contextmanager
def _screen() -> Iterator[Callable[[RenderableType], None]]:
    """Draws in place, whole pictures only, and leaves the last one."""
    from rich.console import Console
    from rich.live import Live

    console = Console(markup=False, highlight=False, emoji=False)
    with Live(console=console, auto_refresh=False) as live:
        yield lambda picture: live.update(picture, refresh=True)


def _advise(found: ClusterStatus) -> None:
    if not found.total_nodes:
        show.hint(
            "No machine has joined: 'corral token create' here, then "
            "'corral join URL --token TOKEN' there."
        )
    elif not found.total_workers:
        show.hint("No worker runs: start one with 'corral worker launch CLASS'.")
