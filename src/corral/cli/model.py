"""`corral models load | unload | pin | unpin`: what workers are to have in memory."""

from __future__ import annotations

from typing import Annotated

import typer

from corral.cli import show
from corral.cli.complete import ModelName as Name
from corral.cli.connect import connect

Workers = Annotated[
    list[str], typer.Argument(metavar="WORKER...", help="Their ids, or names.")
]
Priority = Annotated[
    str,
    typer.Option(metavar="P", help="Before which tasks: low to critical, or a number."),
]


def _priority(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdecimal() else text


def _assign(
    ctx: typer.Context,
    model: str,
    workers: list[str],
    *,
    preload: bool,
    pin: bool | None,
    priority: str = "normal",
) -> None:
    with connect(ctx) as client:
        found = client.assign_model(
            model, workers, preload=preload, pin=pin, priority=_priority(priority)
        )
    for told in found:
        left = (
            f", about {show.took(told.estimated_time)}" if told.estimated_time else ""
        )
        typer.echo(f"{told.worker_id} {told.status}{left}")


def load(
    ctx: typer.Context, model: Name, workers: Workers, priority: Priority = "normal"
) -> None:
    """Bring a model into workers' memory; 'corral models' shows when it is there."""
    _assign(ctx, model, workers, preload=True, pin=None, priority=priority)


def pin(
    ctx: typer.Context,
    model: Name,
    workers: Workers,
    priority: Priority = "normal",
    lazy: Annotated[
        bool, typer.Option("--lazy", help="Leave the loading to the first task.")
    ] = False,
) -> None:
    """Load a model and keep it: it is never dropped, and loaded after each restart."""
    _assign(ctx, model, workers, preload=not lazy, pin=True, priority=priority)


def unpin(ctx: typer.Context, model: Name, workers: Workers) -> None:
    """Let workers drop a model again; it stays until its memory is needed."""
    _assign(ctx, model, workers, preload=False, pin=False)


def unload(
    ctx: typer.Context,
    model: Name,
    workers: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORKER...", help="Their ids, or names; else all."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also where it is pinned; ends the pin.")
    ] = False,
) -> None:
    """Have workers drop a model, once nothing uses it."""
    with connect(ctx) as client:
        gone = client.unload_model(model, workers or (), force=force)
    if not gone:
        show.hint(f"No worker has {model}.")
    for worker_id in gone:
        typer.echo(f"unloading {model} from {worker_id}")
