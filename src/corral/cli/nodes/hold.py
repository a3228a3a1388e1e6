"""`corral cordon`, `drain`, `uncordon`, `label`, `taint` and `window`, of nodes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options.arguments import number_or_word, seconds
from corral.cli.options.connect import connect
from corral.cli.terminal import errors, output, progress

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire.nodes import NodeInfo, WindowInfo


POLL_S = 0.3
NodeArgument = Annotated[
    str, typer.Argument(metavar="NODE", help="Its id, or its hostname.")
]
Reason = Annotated[str | None, typer.Option(metavar="TEXT", help="Why; others see it.")]
Until = Annotated[
    str | None,
    typer.Option(metavar="S|TIME", help="Open it then: seconds, or an ISO time."),
]
window_app = typer.Typer(no_args_is_help=True, help="Plan maintenance of nodes.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="The window.")]
_COLUMNS: output.Columns[WindowInfo] = {
    "NAME": lambda row: row.name,
    "WHEN": lambda row: row.cron or row.starts_at,
    "ZONE": lambda row: row.timezone,
    "FOR": lambda row: output.took(row.duration),
    "DRAINS": lambda row: "yes" if row.drain else "no",
    "NEXT": lambda row: row.next_at,
    "REASON": lambda row: row.reason,
}


def cordon(
    ctx: typer.Context,
    node: NodeArgument,
    reason: Reason = None,
    until: Until = None,
    as_json: output.JsonFlag = False,
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
    as_json: output.JsonFlag = False,
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
        output.hint(f"{found.running_tasks} task(s) still run; it goes on draining")
        raise typer.Exit(errors.FAILED)


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
    ctx: typer.Context, node: NodeArgument, as_json: output.JsonFlag = False
) -> None:
    """Let a node have work again, and start its workers."""
    with connect(ctx) as client:
        found = client.uncordon_node(node)
    _show(found, as_json)


def _show(node: NodeInfo, as_json: bool) -> None:
    if as_json:
        output.echo_json(node.to_dict())
        return
    typer.echo(f"{node.node_id} is {node.scheduling}")
    for hold in node.holds:
        until = f" until {output.cell(hold.until)}" if hold.until else ""
        reason = f": {hold.reason}" if hold.reason else ""
        output.hint(f"{hold.source}{until}{reason}")


# `corral label` and `corral taint`: what tasks may ask of a node, or must tolerate.


def label(
    ctx: typer.Context,
    node: NodeArgument,
    words: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE|KEY-", help="A label to set, or to remove."),
    ],
    as_json: output.JsonFlag = False,
) -> None:
    """Set labels of a node, or remove them: `corral label NODE rack=a old-`."""
    with connect(ctx) as client:
        found = client.change_node(node, labels=read_changes(words, bare=None))
    if as_json:
        output.echo_json(found.to_dict())
        return
    for key, value in sorted(found.labels.items()):
        typer.echo(f"{key}={value}")


def taint(
    ctx: typer.Context,
    node: NodeArgument,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY[=VALUE]|KEY-", help="A taint to set, or to remove."
        ),
    ],
    as_json: output.JsonFlag = False,
) -> None:
    """Keep tasks away that do not tolerate it: `corral taint NODE spot old-`."""
    with connect(ctx) as client:
        found = client.change_node(node, taints=read_changes(words, bare=""))
    if as_json:
        output.echo_json(found.to_dict())
        return
    for word in found.taints:
        typer.echo(word)


def read_changes(words: list[str], bare: str | None) -> dict[str, str | None]:
    """What each key is to be; None to remove it. `bare` is the value of a key alone.

    Raises:
        typer.BadParameter: a key alone, where it needs a value.
    """
    said: dict[str, str | None] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if equals and value:
            said[key] = value
        elif not equals and word.endswith("-"):
            said[word[:-1]] = None
        elif not equals and bare is not None:
            said[key] = bare
        else:
            raise typer.BadParameter(f"{word!r} is neither KEY=VALUE nor KEY-")
    return said


# `corral window`: times of maintenance, in which a node gets nothing new.


@window_app.command()
def add(
    ctx: typer.Context,
    node: NodeArgument,
    name: Name,
    duration: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long: 90, 30m, 2h, 1d.")
    ],
    cron: Annotated[
        str | None,
        typer.Option(metavar="CRON", help='When: "minute hour day month weekday".'),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="S|TIME", help="Once: seconds from now, or an ISO time."),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option("--tz", metavar="ZONE", help="Like Europe/Berlin; else UTC."),
    ] = None,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why; others see it.")
    ] = None,
    cordon: Annotated[
        bool, typer.Option("--cordon", help="Leave its workers running.")
    ] = False,
    as_json: output.JsonFlag = False,
) -> None:
    """Plan maintenance of a node, once (--at) or by the clock (--cron).

    While it lasts the node gets nothing new and is drained; with --cordon its workers
    stay.
    """
    if (cron is None) == (at is None):
        raise typer.BadParameter("give --cron or --at")
    with connect(ctx) as client:
        found = client.add_window(
            node,
            name,
            seconds(duration),
            cron=cron,
            starts_at=number_or_word(at, float),
            timezone=timezone,
            reason=reason,
            drain=not cordon,
        )
    (made,) = [row for row in found if row.name == name]
    if as_json:
        output.echo_json(made.to_dict())
        return
    typer.echo(made.name)
    output.hint(
        f"begins at {output.cell(made.next_at)}" if made.next_at else "begins now"
    )


@window_app.command("list")
def list_(
    ctx: typer.Context, node: NodeArgument, as_json: output.JsonFlag = False
) -> None:
    """List the windows of a node."""
    with connect(ctx) as client:
        found = client.windows(node)
    none = 'No windows. Try: corral window add NODE NAME --cron "@weekly" --for 2h'
    output.show_list(found, _COLUMNS, as_json=as_json, none=none)


@window_app.command()
def remove(ctx: typer.Context, node: NodeArgument, name: Name) -> None:
    """Forget a window; one that lasts ends now."""
    with connect(ctx) as client:
        client.remove_window(node, name)
    typer.echo(f"removed {name}")
