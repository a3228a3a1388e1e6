"""`corral workers`: what runs tasks, and how it is doing."""

from __future__ import annotations

from typing import Annotated

import typer

from corral.cli import show
from corral.cli.connect import connect


def workers(
    ctx: typer.Context,
    status: Annotated[
        str | None, typer.Option(help="Only online, busy, error or offline ones.")
    ] = None,
    as_json: show.JsonFlag = False,
) -> None:
    """List workers."""
    with connect(ctx) as client:
        found = client.workers(status=status)
    if as_json:
        show.echo_values(found)
        return
    if not found:
        show.hint(
            f"No worker is {status}."
            if status
            else "No workers. Start one with 'corral worker launch CLASS', "
            "like 'corral worker launch corral.EchoWorker'."
        )
        return
    show.table(
        ("WORKER", "NAME", "STATUS", "SERVES", "NODE", "TASKS", "RESTARTS", "ERROR"),
        [
            (
                worker.worker_id,
                worker.name,
                worker.status,
                ", ".join(worker.job_types),
                worker.node_id,
                show.count(worker.current_tasks),
                worker.restarts or None,
                worker.error,
            )
            for worker in found
        ],
    )
