"""`corral alerts`: what is wrong, and who looks after it."""

from __future__ import annotations

from typing import Annotated

import typer

from corral.cli import show
from corral.cli.connect import connect
from corral.cli.events import Severity

app = typer.Typer(help="What is wrong in the cluster.")


@app.callback(invoke_without_command=True)
def alerts(
    ctx: typer.Context,
    is_all: Annotated[
        bool, typer.Option("--all", "-a", help="Also those that are over.")
    ] = False,
    severity: Severity = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1000, help="How many at most.")
    ] = 100,
    as_json: show.JsonFlag = False,
) -> None:
    """List alerts, newest first."""
    if ctx.invoked_subcommand is not None:
        return
    with connect(ctx) as client:
        found = client.alerts(is_open=not is_all, severity=severity, limit=limit)
        health = client.cluster_health().status if not as_json else ""
    if as_json:
        show.echo_values(found)
        return
    if found:
        show.table(
            ("ID", "SEVERITY", "STATUS", "AGE", "BY", "TITLE"),
            [
                (
                    alert.id,
                    alert.severity,
                    alert.status,
                    show.ago(alert.raised_at),
                    alert.acknowledged_by,
                    alert.title,
                )
                for alert in found
            ],
        )
    show.hint(f"The cluster is {health}.")


@app.command()
def ack(
    ctx: typer.Context,
    alert_ids: Annotated[
        list[int], typer.Argument(metavar="ID...", help="Their numbers.")
    ],
    note: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What is being done.")
    ] = None,
) -> None:
    """Say that you look after alerts: nothing more is told of them until they end."""
    with connect(ctx) as client:
        for alert_id in alert_ids:
            found = client.acknowledge_alert(alert_id, note=note)
            typer.echo(show.cell(f"acknowledged {found.id}: {found.title}"))
