"""`corral models`: which worker has which model in memory, or is to have it."""

from __future__ import annotations

import typer

from corral.cli import show
from corral.cli.connect import connect

_COLUMNS = (
    *("MODEL", "WORKER", "NAME", "NODE", "STATUS"),
    *("MEMORY", "LOADED IN", "USED", "PINNED"),
)


def models(ctx: typer.Context, as_json: show.JsonFlag = False) -> None:
    """List models in workers' memory, and those they were asked to load."""
    with connect(ctx) as client:
        found = client.models()
    if as_json:
        show.echo_values(found)
        return
    if not found:
        show.hint(
            "No worker has a model. Tasks with a model load it, and so does "
            "'corral model load MODEL WORKER'."
        )
        return
    show.table(
        _COLUMNS,
        [
            (
                model.name,
                worker.worker_id,
                worker.worker_name,
                worker.node_id,
                model.status,
                "" if model.memory_usage is None else f"{model.memory_usage:.0f} MB",
                show.took(model.load_time),
                f"{show.ago(model.last_used)} ago" if model.last_used else "",
                "yes" if model.pinned else "",
            )
            for worker in found
            for model in worker.models
        ],
    )
