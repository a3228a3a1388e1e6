"""`corral nodes`: the machines of the cluster."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from corral.cli import show
from corral.cli.breaker import print_breakers
from corral.cli.connect import connect

_COLUMNS = (
    *("NODE", "HOST", "STATUS", "WORK", "WORKERS", "GPUS"),
    *("CPU", "MEMORY", "DISK", "LOAD", "SEEN"),
)


def nodes(
    ctx: typer.Context,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that have left.")
    ] = False,
    as_json: show.JsonFlag = False,
) -> None:
    """List the machines of the cluster."""
    with connect(ctx) as client:
        found = client.nodes()
    if as_json:
        show.echo_values(found)
        return
    found = [node for node in found if everything or node.status != "left"]
    if not found:
        show.hint(
            "No machine has joined. 'corral up' makes this one a node; for another, "
            "run 'corral token create' here and 'corral join URL --token TOKEN' there."
        )
        return
    show.table(
        _COLUMNS,
        [
            (
                node.node_id,
                node.hostname,
                node.status,
                node.scheduling,
                show.count(node.workers),
                gpus(node.gpus),
                show.percent(node.cpu_percent),
                show.percent(node.memory_percent),
                show.percent(node.disk_percent),
                "" if node.load_1m is None else f"{node.load_1m:.2f}",
                show.ago(node.last_heartbeat),
            )
            for node in found
        ],
    )
    if any(node.breakers for node in found):
        typer.echo()
        print_breakers(found)


def gpus(cards: list[dict[str, Any]]) -> str:
    """How many cards are offered, and what of their memory may be given out."""
    offered = [card for card in cards if card.get("is_offered")]
    if not offered:
        return f"0 of {len(cards)}" if cards else ""
    words = str(len(offered))
    if any(card.get("is_simulated") for card in offered):
        words += " simulated"
    sizes = [(c.get("memory_offered_mb"), c.get("memory_total_mb")) for c in offered]
    known = [(free, total) for free, total in sizes if free is not None and total]
    if not known:
        return words
    free, total = (sum(column) / 1024 for column in zip(*known, strict=True))
    return f"{words}, {free:.0f}/{total:.0f} GB offered"
