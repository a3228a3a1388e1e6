"""`corral nodes`, `corral gpu` and `corral breaker`: machines, cards, what fails."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corral.cli.options.connect import connect
from corral.cli.terminal import output
from corral.errors import NotFound

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire.nodes import NodeInfo
    from corral.wire.workers import WorkerInfo


breaker_app = typer.Typer(
    no_args_is_help=True, help="Workers that keep failing, and trying them again."
)
_COLUMNS = (
    *("NODE", "HOST", "STATUS", "WORK", "WORKERS", "GPUS"),
    *("CPU", "MEMORY", "DISK", "LOAD", "SEEN"),
)
gpu_app = typer.Typer(no_args_is_help=True, help="List GPUs, or lift a quarantine.")
_GPU_COLUMNS = (
    *("NODE", "GPU", "NAME", "MEMORY", "OFFERED", "USE"),
    *("TEMPERATURE", "STATE", "WORKER", "ID"),
)


def nodes(
    ctx: typer.Context,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that have left.")
    ] = False,
    as_json: output.JsonFlag = False,
) -> None:
    """List the machines of the cluster."""
    with connect(ctx) as client:
        found = client.nodes()
    if as_json:
        output.echo_values(found)
        return
    found = [node for node in found if everything or node.status != "left"]
    if not found:
        output.hint(
            "No machine has joined. 'corral up' makes this one a node; for another, "
            "run 'corral token create' here and 'corral join URL --token TOKEN' there."
        )
        return
    output.table(
        _COLUMNS,
        [
            (
                node.node_id,
                node.hostname,
                node.status,
                node.scheduling,
                output.count(node.workers),
                gpus(node.gpus),
                output.percent(node.cpu_percent),
                output.percent(node.memory_percent),
                output.percent(node.disk_percent),
                "" if node.load_1m is None else f"{node.load_1m:.2f}",
                output.ago(node.last_heartbeat),
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


# `corral gpu list | release`: the cards of all machines, and those set apart.


@gpu_app.command("list")
def list_gpus(ctx: typer.Context, as_json: output.JsonFlag = False) -> None:
    """List the GPUs of the cluster."""
    with connect(ctx) as client:
        owners = _owners(client.workers())
        found = [
            {**card, "node_id": node.node_id, "worker_id": owners.get(card["id"])}
            for node in client.nodes()
            for card in node.gpus
        ]
    if as_json:
        output.echo_json(found)
        return
    if not found:
        output.hint("No machine of the cluster has a GPU, or none has told yet.")
        return
    output.table(_GPU_COLUMNS, [_row(card) for card in found])


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
        output.percent(card.get("utilization_percent")),
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


@gpu_app.command()
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


# `corral breaker list | reset`: what nodes have stopped starting, and why.


@breaker_app.command("list")
def list_(ctx: typer.Context, as_json: output.JsonFlag = False) -> None:
    """List breakers that are open: kinds of workers that are not started now."""
    with connect(ctx) as client:
        found = client.nodes()
    if as_json:
        rows = [
            {"node_id": node.node_id, **breaker}
            for node in found
            for breaker in node.breakers
        ]
        output.echo_json(rows)
    elif not print_breakers(found):
        output.hint("No breaker is open: every worker may start.")


def print_breakers(nodes: Iterable[NodeInfo]) -> bool:
    """A line for each breaker that is not closed; false when there is none."""
    rows = [
        (
            node.node_id,
            breaker.get("key"),
            breaker.get("state"),
            breaker.get("failures"),
            output.took(breaker.get("next_probe_s")),
            breaker.get("error"),
        )
        for node in nodes
        for breaker in node.breakers
    ]
    if rows:
        output.table(
            ("NODE", "BREAKER", "STATE", "FAILURES", "NEXT TRY", "ERROR"), rows
        )
    return bool(rows)


@breaker_app.command()
def reset(
    ctx: typer.Context,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Its id.")],
    key: Annotated[
        str | None, typer.Argument(metavar="BREAKER", help="One; else all of the node.")
    ] = None,
) -> None:
    """Close breakers and start what waits for them at once."""
    with connect(ctx) as client:
        done = client.reset_breakers(node, key)
    if not done.reset:
        output.hint(f"No worker of {node} waits for a breaker.")
    for name in done.reset:
        typer.echo(f"reset {name}")
