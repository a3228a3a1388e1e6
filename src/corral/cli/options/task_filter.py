"""Options that say which tasks are meant, and what is done to all of those."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options import arguments
from corral.cli.options.arguments import model_names

if TYPE_CHECKING:
    from corral.client import Bulk, TaskQuery

_Status = Annotated[
    str | None, typer.Option(help="Only queued, running, completed, failed, ... ones.")
]
_Type = Annotated[
    str | None, typer.Option("--type", metavar="TYPE", help="Only of this type.")
]
_Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Only those that need this model.",
        autocompletion=model_names,
    ),
]
_Worker = Annotated[
    str | None, typer.Option(metavar="WORKER", help="Only on this worker.")
]
_Label = Annotated[
    str | None, typer.Option(metavar="KEY=VALUE", help="Only with this label.")
]
_Search = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Only with this in id, type or error."),
]
_Dead = Annotated[
    bool, typer.Option("--dead", help="Only dead letters: failed for good.")
]
_Request = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Only those that came with this request."),
]
_Schedule = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only runs of this schedule.")
]


def which(
    status: _Status = None,
    task_type: _Type = None,
    model: _Model = None,
    worker: _Worker = None,
    label: _Label = None,
    search: _Search = None,
    dead: _Dead = False,
    request: _Request = None,
    schedule: _Schedule = None,
) -> TaskQuery:
    """What was said of them, and no more."""
    said: TaskQuery = {
        "status": status,
        "task_type": task_type,
        "model_name": model,
        "worker_id": worker,
        "label": arguments.label_pair(label),
        "search": search,
        "dead": True if dead else None,
        "request_id": request,
        "schedule": schedule,
    }
    return {key: value for key, value in said.items() if value is not None}  # type: ignore[return-value]


def tell(bulk: Bulk, verb: str) -> None:
    """Say what was done; exits 1 when something could not be."""
    typer.echo(f"{verb} {bulk.done} task{'' if bulk.done == 1 else 's'}")
    for error in bulk.errors:
        typer.echo(f"{error.task_id}: {error.message}", err=True)
    if bulk.refused:
        raise typer.Exit(1)
