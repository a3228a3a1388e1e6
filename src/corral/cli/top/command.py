"""`corral top`: watch the cluster and steer it, or take one picture of it.

A picture is plain tables on paper, or JSON for scripts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from corral.cli.cluster import status
from corral.cli.options.connect import FIRST_S, TOTAL_S, reach_of
from corral.cli.terminal import output
from corral.cli.top import columns, headline, picture
from corral.cli.top.cells import Sheet
from corral.cli.top.picture import ClusterView, FigureHistory
from corral.errors import BadRequest

if TYPE_CHECKING:
    from corral.client import Client


T = TypeVar("T")
_WIDTH = 160
_DRAWN = ("TREND",)
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
            output.echo_json(plain(first)) if as_json else echo(first)
            return
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise BadRequest("this needs a terminal; --once prints one picture")
        # Threads may wait for an answer until the very end of the process.
        at_end.pop_all()
    lasting = Patience(total_s=TOTAL_S, first_s=FIRST_S)
    _show(client, Client(reach.url, home=reach.home, patience=lasting), first)


def _show(looking: Client, patient: Client, first: picture.ClusterView) -> None:
    from corral.cli.top.screen import Top

    fault = Top(looking, patient, first).run()
    if fault is not None:
        raise fault


def plain(picture: ClusterView) -> dict[str, Any]:
    """What `corral status --workers --json` tells, and the tasks."""
    told = status.to_plain(picture.overview, with_workers=True)
    return {**told, "listed_tasks": [task.to_dict() for task in picture.tasks]}


def echo(picture: ClusterView) -> None:
    """Print the lists, the most important ones first."""
    history = FigureHistory()
    history.add(picture)
    said = headline.cluster(picture, history).plain.splitlines()[0]
    typer.echo(said.strip())
    if wrong := headline.trouble(picture):
        typer.echo(output.cell(wrong))
    _list("tasks: " + headline.counts(picture), columns.TASKS, columns.tasks(picture))
    _list("GPUs", columns.GPUS, columns.cards(picture, history))
    _list("workers", columns.WORKERS, columns.workers(picture))
    _list("nodes", columns.NODES, columns.nodes(picture, history))


def _list(title: str, sheet: Sheet[T], rows: Sequence[T]) -> None:
    typer.echo(f"\n{title}")
    if not rows:
        return
    fitted = [(c, w) for c, w in sheet.fit(_WIDTH) if c.title not in _DRAWN]
    output.table(
        [column.title for column, _ in fitted],
        [[column.cell(each, w).plain.strip() for column, w in fitted] for each in rows],
    )
