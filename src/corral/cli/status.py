"""`corral status`: the cluster on one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from corral.cli import show
from corral.cli.connect import connect

if TYPE_CHECKING:
    from corral.client import ClusterStatus

_ORDER = ("queued", "running", "completed", "failed", "timed_out", "cancelled", "error")


def status(ctx: typer.Context, as_json: show.JsonFlag = False) -> None:
    """Show how the cluster does: nodes, workers and tasks."""
    with connect(ctx) as client:
        found = client.cluster_status()
    if as_json:
        show.echo_json(found.to_dict())
        return
    show.facts(
        [
            ("status", found.status),
            ("manager", f"{client.url}, version {found.version or 'unknown'}"),
            ("up for", show.took(found.uptime_s)),
            ("nodes", f"{found.online_nodes} online of {found.total_nodes}"),
            ("workers", f"{found.active_workers} active of {found.total_workers}"),
            ("tasks", _tasks(found)),
            ("memory", _memory(found)),
            ("GPU", show.percent(found.gpu_utilization)),
        ]
    )
    _advise(found)


def _tasks(found: ClusterStatus) -> str:
    counts = dict(found.tasks)
    # Users know no `assigned`: to them such a task is still queued.
    counts["queued"] = counts.get("queued", 0) + counts.pop("assigned", 0)
    counts = counts if found.tasks else {"queued": found.queued_tasks}
    counts.setdefault("running", found.running_tasks)
    words = [f"{counts[state]} {state}" for state in _ORDER if counts.get(state)]
    return ", ".join(words) or "none"


def _memory(found: ClusterStatus) -> str:
    if not found.total_memory_mb:
        return ""
    free = (found.available_memory_mb or 0) / 1024
    return f"{free:.1f} GiB free of {found.total_memory_mb / 1024:.1f} GiB"


def _advise(found: ClusterStatus) -> None:
    if not found.total_nodes:
        show.hint(
            "No machine has joined: 'corral token create' here, then "
            "'corral join URL --token TOKEN' there."
        )
    elif not found.total_workers:
        show.hint("No worker runs: start one with 'corral worker launch CLASS'.")
