"""`corral cordon`, `drain` and `uncordon`: nodes that get nothing new, and again do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli import fault, progress, show
from corral.cli.argument import number_or_word
from corral.cli.connect import connect

if TYPE_CHECKING:
    from corral.client import Client
    from corral.client.values import NodeInfo

POLL_S = 0.3
NodeArgument = Annotated[
    str, typer.Argument(metavar="NODE", help="Its id, or its hostname.")
]
Reason = Annotated[str | None, typer.Option(metavar="TEXT", help="Why; others see it.")]
Until = Annotated[
    str | None,
    typer.Option(metavar="S|TIME", help="Open it then: seconds, or an ISO time."),
]


def cordon(
    ctx: typer.Context,
    node: NodeArgument,
    reason: Reason = None,
    until: Until = None,
    as_json: show.JsonFlag = False,
) -> None:
    """Give a node nothing new; what it runs goes on, and its workers stay."""
    with connect(ctx) as client:
        found = client.cordon_node(
            node, reason=reason, until=number_or_word(until, float)
        )
    _show(found, as_json)


def drain(
    ctx: typer.Context,
    node: NodeArgument,
    reason: Reason = None,
    until: Until = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when nothing runs there any more.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="S", help="Wait so long at most; then exit with 1.", min=0
        ),
    ] = None,
    as_json: show.JsonFlag = False,
) -> None:
    """Give a node nothing new, and stop its workers as soon as they are done.

    Running tasks finish, however long they take. 'corral uncordon' brings it back.
    """
    with connect(ctx) as client:
        found = client.drain_node(
            node, reason=reason, until=number_or_word(until, float)
        )
        if wait or timeout is not None:
            found = _wait(client, found, timeout)
    _show(found, as_json)
    if (wait or timeout is not None) and found.scheduling == "draining":
        show.hint(f"{found.running_tasks} task(s) still run; it goes on draining")
        raise typer.Exit(fault.FAILED)


def _wait(client: Client, node: NodeInfo, timeout_s: float | None) -> NodeInfo:
    """Until it is empty, its time is up, or somebody opened it again."""
    ends = None if timeout_s is None else time.monotonic() + timeout_s
    most = max(node.running_tasks, 1)
    with progress.share() as say:
        while node.scheduling == "draining":
            if ends is not None and time.monotonic() >= ends:
                break
            say(1 - node.running_tasks / most, f"{node.running_tasks} task(s) run")
            time.sleep(POLL_S)
            node = client.node(node.node_id)
            most = max(most, node.running_tasks)
    return node


def uncordon(
    ctx: typer.Context, node: NodeArgument, as_json: show.JsonFlag = False
) -> None:
    """Let a node have work again, and start its workers."""
    with connect(ctx) as client:
        found = client.uncordon_node(node)
    _show(found, as_json)


def _show(node: NodeInfo, as_json: bool) -> None:
    if as_json:
        show.echo_json(node.to_dict())
        return
    typer.echo(f"{node.node_id} is {node.scheduling}")
    for hold in node.holds:
        until = f" until {show.cell(hold.until)}" if hold.until else ""
        reason = f": {hold.reason}" if hold.reason else ""
        show.hint(f"{hold.source}{until}{reason}")
