"""`corral gpu list | release`: the cards of all machines, and those set apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from corral.cli import show
from corral.cli.connect import connect
from corral.errors import NotFound

if TYPE_CHECKING:
    from corral.client import Client
    from corral.client.values import WorkerInfo

app = typer.Typer(no_args_is_help=True, help="List GPUs, or lift a quarantine.")
_COLUMNS = (
    *("NODE", "GPU", "NAME", "MEMORY", "OFFERED", "USE"),
    *("TEMPERATURE", "STATE", "WORKER", "ID"),
)


@app.command("list")
def list_gpus(ctx: typer.Context, as_json: show.JsonFlag = False) -> None:
    """List the GPUs of the cluster."""
    with connect(ctx) as client:
        owners = _owners(client.workers())
        found = [
            {**card, "node_id": node.node_id, "worker_id": owners.get(card["id"])}
            for node in client.nodes()
            for card in node.gpus
        ]
    if as_json:
        show.echo_json(found)
        return
    if not found:
        show.hint("No machine of the cluster has a GPU, or none has told yet.")
        return
    show.table(_COLUMNS, [_row(card) for card in found])


def _owners(workers: list[WorkerInfo]) -> dict[str, str]:
    return {card["id"]: w.worker_id for w in workers for card in w.gpu_info or ()}


def _row(card: dict[str, Any]) -> tuple[object, ...]:
    degrees = card.get("temperature_c")
    return (
        card["node_id"],
        f"gpu:{card['index']}",
        card["name"],
        _gigabytes(card.get("memory_total_mb")),
        _gigabytes(card.get("memory_offered_mb")),
        show.percent(card.get("utilization_percent")),
        "" if degrees is None else f"{degrees:.0f} C",
        state_of(card),
        card["worker_id"],
        card["id"],
    )


def _gigabytes(memory_mb: float | None) -> str:
    return "" if memory_mb is None else f"{memory_mb / 1024:.1f} GB"


def state_of(card: dict[str, Any]) -> str:
    """How a card is, in a few words."""
    if held := card.get("quarantine"):
        return f"quarantined until {held['until'][:16]}: {held['reason']}"
    if card.get("error"):
        return f"cannot be read: {card['error']}"
    return "offered" if card.get("is_offered") else "not offered"


@app.command()
def release(
    ctx: typer.Context,
    gpu: Annotated[
        str, typer.Argument(metavar="GPU", help="Its id, or gpu:N with --node.")
    ],
    node: Annotated[
        str | None, typer.Option(metavar="NODE", help="Where it is; else looked up.")
    ] = None,
) -> None:
    """Lift the quarantine of a GPU: it is offered again at once."""
    with connect(ctx) as client:
        card = client.release_gpu(node or _node_of(client, gpu), gpu)
    typer.echo(f"released {card['id']}")


def _node_of(client: Client, gpu: str) -> str:
    for node in client.nodes():
        if any(card["id"] == gpu for card in node.gpus):
            return node.node_id
    raise NotFound(f"no node has a GPU with the id {gpu!r}; see 'corral gpu list'")
