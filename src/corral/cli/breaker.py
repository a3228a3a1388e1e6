"""`corral breaker list | reset`: what nodes have stopped starting, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli import show
from corral.cli.connect import connect

if TYPE_CHECKING:
    from corral.client.values import NodeInfo

app = typer.Typer(
    no_args_is_help=True, help="Workers that keep failing, and trying them again."
)


@app.command("list")
def list_(ctx: typer.Context, as_json: show.JsonFlag = False) -> None:
    """List breakers that are open: kinds of workers that are not started now."""
    with connect(ctx) as client:
        found = client.nodes()
    if as_json:
        rows = [
            {"node_id": node.node_id, **breaker}
            for node in found
            for breaker in node.breakers
        ]
        show.echo_json(rows)
    elif not print_breakers(found):
        show.hint("No breaker is open: every worker may start.")


def print_breakers(nodes: Iterable[NodeInfo]) -> bool:
    """A line for each breaker that is not closed; false when there is none."""
    rows = [
        (
            node.node_id,
            breaker.get("key"),
            breaker.get("state"),
            breaker.get("failures"),
            show.took(breaker.get("next_probe_s")),
            breaker.get("error"),
        )
        for node in nodes
        for breaker in node.breakers
    ]
    if rows:
        show.table(("NODE", "BREAKER", "STATE", "FAILURES", "NEXT TRY", "ERROR"), rows)
    return bool(rows)


@app.command()
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
        show.hint(f"No worker of {node} waits for a breaker.")
    for name in done.reset:
        typer.echo(f"reset {name}")
