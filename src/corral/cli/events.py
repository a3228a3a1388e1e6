"""`corral events`: what happened, and what happens now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli import show
from corral.cli.connect import connect

if TYPE_CHECKING:
    from corral.client.alerts import EventInfo

Severity = Annotated[
    str | None,
    typer.Option(
        metavar="SEVERITY", help="Only info, warning, error or critical, or worse."
    ),
]


def events(
    ctx: typer.Context,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes.")
    ] = False,
    severity: Severity = None,
    event_type: Annotated[
        str | None,
        typer.Option("--type", metavar="TYPE,...", help="Only of these types."),
    ] = None,
    node: Annotated[
        str | None, typer.Option(metavar="NODE", help="Only about this node.")
    ] = None,
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", min=1, max=1000, help="How many to begin with."),
    ] = 50,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line.")
    ] = False,
) -> None:
    """Show what happened in the cluster, oldest first."""
    count = 0
    with connect(ctx) as client:
        if follow:
            found = client.follow_events(
                limit=limit, severity=severity, event_type=event_type, node_id=node
            )
        else:
            page = client.events(
                limit=limit, severity=severity, event_type=event_type, node_id=node
            )
            found = iter(page.events)
        for event in found:
            _print(event, as_json=as_json)
            count += 1
    if not count and not as_json:
        show.hint("Nothing of that kind has happened.")


def _print(event: EventInfo, *, as_json: bool) -> None:
    if as_json:
        show.echo_json(event.to_dict(), indent=None)
        return
    parts = (event.event_type, event.source_node_id, event.title)
    words = "  ".join(show.cell(part) for part in parts if part)
    typer.echo(f"{show.cell(event.at)}  {show.cell(event.severity):<8}  {words}")
