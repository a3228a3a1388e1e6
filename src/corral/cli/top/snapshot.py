"""One picture of `corral top` on paper: plain tables, or JSON for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import typer

from corral.cli import overview, show
from corral.cli.top import headline, listing, row
from corral.cli.top.picture import History, Picture
from corral.cli.top.sheet import Sheet

T = TypeVar("T")
_WIDTH = 160
_DRAWN = ("TREND",)


def plain(picture: Picture) -> dict[str, Any]:
    """What `corral status --workers --json` tells, and the tasks."""
    told = overview.to_plain(picture.overview, with_workers=True)
    return {**told, "listed_tasks": [task.to_dict() for task in picture.tasks]}


def echo(picture: Picture) -> None:
    """Print the lists, the most important ones first."""
    history = History()
    history.add(picture)
    said = headline.cluster(picture, history).plain.splitlines()[0]
    typer.echo(said.strip())
    if wrong := headline.trouble(picture):
        typer.echo(show.cell(wrong))
    _list("tasks: " + headline.counts(picture), listing.TASKS, row.tasks(picture))
    _list("GPUs", listing.GPUS, row.cards(picture, history))
    _list("workers", listing.WORKERS, row.workers(picture))
    _list("nodes", listing.NODES, row.nodes(picture, history))


def _list(title: str, sheet: Sheet[T], rows: Sequence[T]) -> None:
    typer.echo(f"\n{title}")
    if not rows:
        return
    fitted = [(c, w) for c, w in sheet.fit(_WIDTH) if c.title not in _DRAWN]
    show.table(
        [column.title for column, _ in fitted],
        [[column.cell(each, w).plain.strip() for column, w in fitted] for each in rows],
    )
