"""`corral models`: who has which model in memory; below it `load`, `unload`, `pin` and
`unpin`: what workers are to have there.
"""

from __future__ import annotations

from typing import Annotated

import typer

from corral.cli.models import catalogue
from corral.cli.options.arguments import ModelName as Name
from corral.cli.options.connect import connect
from corral.cli.terminal import output

Workers = Annotated[
    list[str], typer.Argument(metavar="WORKER...", help="Their ids, or names.")
]
Priority = Annotated[
    str,
    typer.Option(metavar="P", help="Before which tasks: low to critical, or a number."),
]
_COLUMNS = (
    *("MODEL", "WORKER", "NAME", "NODE", "STATUS"),
    *("MEMORY", "LOADED IN", "USED", "PINNED"),
)
_HINT = "Nothing to move: no model would be worth more elsewhere than its move costs."
app = typer.Typer(
    invoke_without_command=True,
    help="List models in workers' memory; the catalogue, and what is done to models.",
)


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
            f", about {output.took(told.estimated_time)}" if told.estimated_time else ""
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
        output.hint(f"No worker has {model}.")
    for worker_id in gone:
        typer.echo(f"unloading {model} from {worker_id}")


# `corral models`: who has which model in memory; below it, what is done to models.


for _name, _call in (
    ("list", catalogue.list_),
    ("show", catalogue.show_),
    ("add", catalogue.add),
    ("pull", catalogue.pull),
    ("remove", catalogue.remove),
    ("load", load),
    ("unload", unload),
    ("pin", pin),
    ("unpin", unpin),
):
    app.command(_name)(_call)


@app.callback()
def models(ctx: typer.Context, as_json: output.JsonFlag = False) -> None:
    """List models in workers' memory, and those they were asked to load.

    The commands below have to do with the catalogue, and with what workers have.
    """
    if ctx.invoked_subcommand is not None:
        return
    with connect(ctx) as client:
        found = client.models()
    if as_json:
        output.echo_values(found)
        return
    if not found:
        output.hint(
            "No worker has a model. Tasks with a model load it, and so does "
            "'corral models load MODEL WORKER'."
        )
        return
    output.table(
        _COLUMNS,
        [
            (
                held.name,
                worker.worker_id,
                worker.worker_name,
                worker.node_id,
                held.status,
                "" if held.memory_usage is None else f"{held.memory_usage:.0f} MB",
                output.took(held.load_time),
                output.ago(held.last_used),
                "yes" if held.pinned else "",
            )
            for worker in found
            for held in worker.models
        ],
    )


# `corral rebalance`: have models go to workers where they are worth more.


def rebalance(
    ctx: typer.Context,
    strategy: Annotated[
        str,
        typer.Option(
            metavar="S",
            help="memory_optimized: even out memory; load_balanced: more copies of "
            "what is asked for most.",
        ),
    ] = "memory_optimized",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would move.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also to and from workers that are busy.")
    ] = False,
    as_json: output.JsonFlag = False,
) -> None:
    """Move models from crowded workers to those with room, where that pays."""
    with connect(ctx) as client:
        found = client.rebalance(strategy=strategy, force=force, dry_run=dry_run)
    if as_json:
        output.echo_json(found.to_dict())
        return
    if not found.operations:
        output.hint(_HINT)
        return
    output.table(
        ("MODEL", "FROM", "TO", "WHAT", "SAVES", "COSTS"),
        [
            (
                move.model,
                move.from_worker,
                move.to_worker,
                "copy" if move.type == "model_copy" else "move",
                output.took(move.saves_s),
                output.took(move.costs_s),
            )
            for move in found.operations
        ],
    )
    word = "would take" if found.status == "dry_run" else "begun; it takes"
    output.hint(f"{word} about {output.took(found.estimated_duration)}")
