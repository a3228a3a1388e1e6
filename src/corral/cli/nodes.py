"""`corral nodes`: the machines of the cluster."""

from __future__ import annotations

import typer

from corral.cli import show
from corral.cli.connect import connect


def nodes(ctx: typer.Context, as_json: show.JsonFlag = False) -> None:
    """List the machines of the cluster."""
    with connect(ctx) as client:
        found = client.nodes()
    if as_json:
        show.echo_values(found)
        return
    if not found:
        show.hint(
            "No machine has joined. 'corral up' makes this one a node; for another, "
            "run 'corral token create' here and 'corral join URL --token TOKEN' there."
        )
        return
    show.table(
        ("NODE", "HOST", "STATUS", "WORKERS", "CPU", "MEMORY", "DISK", "LOAD", "SEEN"),
        [
            (
                node.node_id,
                node.hostname,
                node.status,
                show.count(node.workers),
                show.percent(node.cpu_percent),
                show.percent(node.memory_percent),
                show.percent(node.disk_percent),
                "" if node.load_1m is None else f"{node.load_1m:.2f}",
                show.ago(node.last_heartbeat),
            )
            for node in found
        ],
    )
