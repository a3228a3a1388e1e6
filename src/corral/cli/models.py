"""`corral models`: who has which model in memory; below it, what is done to models."""

from __future__ import annotations

import typer

from corral.cli import catalogue, model, show
from corral.cli.connect import connect

_COLUMNS = (
    *("MODEL", "WORKER", "NAME", "NODE", "STATUS"),
    *("MEMORY", "LOADED IN", "USED", "PINNED"),
)


app = typer.Typer(
    invoke_without_command=True,
    help="List models in workers' memory; the catalogue, and what is done to models.",
)
for _name, _call in (
    ("list", catalogue.list_),
    ("show", catalogue.show_),
    ("add", catalogue.add),
    ("pull", catalogue.pull),
    ("remove", catalogue.remove),
    ("load", model.load),
    ("unload", model.unload),
    ("pin", model.pin),
    ("unpin", model.unpin),
):
    app.command(_name)(_call)


@app.callback()
def models(ctx: typer.Context, as_json: show.JsonFlag = False) -> None:
    """List models in workers' memory, and those they were asked to load.

    The commands below have to do with the catalogue, and with what workers have.
    """
    if ctx.invoked_subcommand is not None:
        return
    with connect(ctx) as client:
        found = client.models()
    if as_json:
        show.echo_values(found)
        return
    if not found:
        show.hint(
            "No worker has a model. Tasks with a model load it, and so does "
            "'corral models load MODEL WORKER'."
        )
        return
    show.table(
        _COLUMNS,
        [
            (
                held.name,
                worker.worker_id,
                worker.worker_name,
                worker.node_id,
                held.status,
                "" if held.memory_usage is None else f"{held.memory_usage:.0f} MB",
                show.took(held.load_time),
                f"{show.ago(held.last_used)} ago" if held.last_used else "",
                "yes" if held.pinned else "",
            )
            for worker in found
            for held in worker.models
        ],
    )
