"""`corral events`: what happened, and happens; `corral alerts`: what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from corral.cli.options import arguments
from corral.cli.options.connect import connect
from corral.cli.terminal import output

if TYPE_CHECKING:
    from corral.wire.events import AlertInfo, EventInfo, LiveEvent


_SHOWN = (
    *("hostname", "name", "task_type", "task_id", "status", "model_name"),
    *("worker_id", "count", "reason"),
)
Severity = Annotated[
    str | None,
    typer.Option(
        metavar="SEVERITY", help="Only info, warning, error or critical, or worse."
    ),
]
alerts_app = typer.Typer(help="What is wrong in the cluster.")
_COLUMNS: output.Columns[AlertInfo] = {
    "ID": lambda alert: alert.id,
    "SEVERITY": lambda alert: alert.severity,
    "STATUS": lambda alert: alert.status,
    "AGE": lambda alert: output.age(alert.raised_at),
    "BY": lambda alert: alert.acknowledged_by,
    "TITLE": lambda alert: alert.title,
}


def events(
    ctx: typer.Context,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes.")
    ] = False,
    live: Annotated[
        bool,
        typer.Option(help="All that happens from now on, also to tasks and workers."),
    ] = False,
    severity: Severity = None,
    event_type: Annotated[
        str | None,
        typer.Option("--type", metavar="TYPE,...", help="Only of these types."),
    ] = None,
    node: Annotated[
        str | None, typer.Option(metavar="NODE", help="Only about this node.")
    ] = None,
    worker: Annotated[
        str | None, typer.Option(metavar="WORKER", help="With --live: of this worker.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(metavar="TASK", help="With --live: of this task.")
    ] = None,
    task_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="With --live: of this job type.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="KEY=VALUE", help="With --live: so labelled.")
    ] = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="With --live: tasks together, counted.")
    ] = False,
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", min=1, max=1000, help="How many to begin with."),
    ] = 50,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line.")
    ] = False,
) -> None:
    """Show what happened in the cluster, oldest first."""
    if live:
        if severity is not None:
            raise typer.BadParameter("--severity is for kept events, not for --live")
        wanted = {
            "event_type": event_type,
            "node_id": node,
            "worker_id": worker,
            "task_id": task,
            "task_type": task_type,
            "label": arguments.label_pair(label),
            "detail": "summary" if summary else None,
        }
        _tell_live(ctx, wanted, as_json=as_json)
        return
    if any((worker, task, task_type, label, summary)):
        raise typer.BadParameter(
            "--worker, --task, --task-type, --label and --summary go with --live"
        )
    wanted = {"severity": severity, "event_type": event_type, "node_id": node}
    _tell(ctx, wanted, limit, follow=follow, as_json=as_json)


def _tell(
    ctx: typer.Context,
    wanted: dict[str, Any],
    limit: int,
    *,
    follow: bool,
    as_json: bool,
) -> None:
    count = 0
    with connect(ctx) as client:
        found = (
            client.follow_events(limit=limit, **wanted)
            if follow
            else iter(client.events(limit=limit, **wanted).events)
        )
        for event in found:
            _print(event, as_json=as_json)
            count += 1
    if not count and not as_json:
        output.hint("Nothing of that kind has happened.")


def _tell_live(ctx: typer.Context, wanted: dict[str, Any], *, as_json: bool) -> None:
    with connect(ctx) as client:
        for event in client.live_events(**wanted):
            if as_json:
                output.echo_json(event.to_dict(), indent=None)
                continue
            words = "  ".join(output.cell(word) for word in _facts(event) if word)
            typer.echo(
                f"{output.cell(event.timestamp)}  {output.cell(event.event)}  {words}"
            )


def _facts(event: LiveEvent) -> list[Any]:
    """What of an event goes into a line."""
    data = event.data if isinstance(event.data, dict) else {}
    if data.get("title"):
        return [data.get("node_id"), data["title"]]
    found = [data.get(name) for name in _SHOWN]
    error, progress = data.get("error"), data.get("progress")
    if isinstance(progress, dict):
        found += [f"{progress.get('fraction', 0):.0%}", progress.get("message")]
    found.append(error.get("message") if isinstance(error, dict) else error)
    return found if any(found) else [f"{k}={v}" for k, v in data.items()]


def _print(event: EventInfo, *, as_json: bool) -> None:
    if as_json:
        output.echo_json(event.to_dict(), indent=None)
        return
    parts = (event.event_type, event.source_node_id, event.title)
    words = "  ".join(output.cell(part) for part in parts if part)
    typer.echo(f"{output.cell(event.at)}  {output.cell(event.severity):<8}  {words}")


# `corral alerts`: what is wrong, and who looks after it.


@alerts_app.callback(invoke_without_command=True)
def alerts(
    ctx: typer.Context,
    is_all: Annotated[
        bool, typer.Option("--all", "-a", help="Also those that are over.")
    ] = False,
    severity: Severity = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1000, help="How many at most.")
    ] = 100,
    as_json: output.JsonFlag = False,
) -> None:
    """List alerts, newest first."""
    if ctx.invoked_subcommand is not None:
        return
    with connect(ctx) as client:
        found = client.alerts(is_open=not is_all, severity=severity, limit=limit)
        health = client.cluster_health().status if not as_json else ""
    if found or as_json:
        output.show_list(found, _COLUMNS, as_json=as_json)
    if as_json:
        return
    output.hint(f"The cluster is {health}.")


@alerts_app.command()
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
            typer.echo(output.cell(f"acknowledged {found.id}: {found.title}"))
