"""`corral nodes`, `corral gpu` and `corral breaker`: machines, cards, what fails."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options.connect import connect
from corral.cli.terminal import output
from corral.cli.words import gpu as gpu_words
from corral.cli.words import node as node_words
from corral.errors import NotFound

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire.nodes import NodeInfo


breaker_app = typer.Typer(
    no_args_is_help=True, help="Workers that keep failing, and trying them again."
)
gpu_app = typer.Typer(no_args_is_help=True, help="List GPUs, or lift a quarantine.")


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
            "run 'corral token create' here and 'CORRAL_JOIN_TOKEN=TOKEN corral join "
            "URL' there."
        )
        return
    output.print_grid(output.list_grid(found, node_words.COLUMNS))
    if any(node.breakers for node in found):
        typer.echo()
        print_breakers(found)


# `corral gpu list | release`: the cards of all machines, and those set apart.


@gpu_app.command("list")
def list_gpus(ctx: typer.Context, as_json: output.JsonFlag = False) -> None:
    """List the GPUs of the cluster."""
    with connect(ctx) as client:
        owners = gpu_words.owners(client.workers())
        found = [
            {
                **card,
                "node_id": node.node_id,
                "worker_id": owner.worker_id if owner else None,
            }
            for node in client.nodes()
            for card in node.gpus
            for owner in (owners.get(card["id"]),)
        ]
    none = "No machine of the cluster has a GPU, or none has told yet."
    output.show_list(found, gpu_words.COLUMNS, as_json=as_json, none=none)


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
