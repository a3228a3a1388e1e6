"""`corral window`: times of maintenance, in which a node gets nothing new."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from corral.cli import show
from corral.cli.argument import number_or_word
from corral.cli.connect import connect
from corral.cli.cordon import NodeArgument

app = typer.Typer(no_args_is_help=True, help="Plan maintenance of nodes.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="The window.")]
_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


@app.command()
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
    as_json: show.JsonFlag = False,
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
        show.echo_json(made.to_dict())
        return
    typer.echo(made.name)
    show.hint(f"begins at {show.cell(made.next_at)}" if made.next_at else "begins now")


def seconds(text: str) -> float:
    """`90`, `30m`, `2h` or `1d` in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise typer.BadParameter(f"{text!r} is no time: 90, 30m, 2h or 1d")
    return float(match[1]) * _UNITS[match[2]]


@app.command("list")
def list_(
    ctx: typer.Context, node: NodeArgument, as_json: show.JsonFlag = False
) -> None:
    """List the windows of a node."""
    with connect(ctx) as client:
        found = client.windows(node)
    if as_json:
        show.echo_values(found)
        return
    if not found:
        show.hint(
            'No windows. Try: corral window add NODE NAME --cron "@weekly" --for 2h'
        )
        return
    show.table(
        ("NAME", "WHEN", "ZONE", "FOR", "DRAINS", "NEXT", "REASON"),
        [
            (
                row.name,
                row.cron or row.starts_at,
                row.timezone,
                show.took(row.duration),
                "yes" if row.drain else "no",
                row.next_at,
                row.reason,
            )
            for row in found
        ],
    )


@app.command()
def remove(ctx: typer.Context, node: NodeArgument, name: Name) -> None:
    """Forget a window; one that lasts ends now."""
    with connect(ctx) as client:
        client.remove_window(node, name)
    typer.echo(f"removed {name}")
