"""What `corral status` shows: read from the manager at one moment, and laid out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from corral.cli import show
from corral.cli.nodes import gpus
from corral.errors import CorralError

if TYPE_CHECKING:
    from rich.table import Table

    from corral.client import Client, ClusterStatus
    from corral.client.calls.events import AlertInfo, ClusterHealth
    from corral.client.values import NodeInfo, WorkerInfo

T = TypeVar("T")

_ORDER = ("queued", "running", "completed", "failed", "timed_out", "cancelled", "error")
_COLUMNS = (
    *("NODE", "TYPE", "STATUS", "CPU", "MEMORY", "DISK"),
    *("GPUS", "WORKERS", "TASKS", "HEARTBEAT"),
)
# A node that takes new work needs no word for it.
_TAKES_WORK = ("", "open")
_NOT_THERE = (403, 404, 405)
_FEW = 3


@dataclass(frozen=True, slots=True)
class Overview:
    """The cluster at one moment; `health` and `alerts` where the manager has them."""

    url: str
    status: ClusterStatus
    nodes: Sequence[NodeInfo]
    workers: Sequence[WorkerInfo]
    health: ClusterHealth | None = None
    alerts: Sequence[AlertInfo] | None = None

    def tasks_of(self, node: NodeInfo) -> int:
        """How many tasks the node's workers have."""
        return sum(show.count(w.current_tasks) or 0 for w in self.workers_of(node))

    def workers_of(self, node: NodeInfo) -> list[WorkerInfo]:
        found = [w for w in self.workers if w.node_id == node.node_id]
        return sorted(found, key=lambda w: w.name or w.worker_id)


def read(client: Client) -> Overview:
    return Overview(
        client.url,
        client.cluster_status(),
        sorted(client.nodes(), key=_place),
        client.workers(),
        _optional(client.cluster_health),
        _optional(client.alerts),
    )


def _place(node: NodeInfo) -> tuple[bool, str, str]:
    return node.node_type != "master", node.hostname, node.node_id


def _optional(call: Callable[[], T]) -> T | None:
    """An answer that not every manager gives, and not to every key."""
    try:
        return call()
    except CorralError as error:
        if getattr(error, "status", None) in _NOT_THERE:
            return None
        raise


def to_plain(told: Overview, *, with_workers: bool) -> dict[str, Any]:
    """All of it as JSON."""
    nodes = [{**n.to_dict(), "tasks": told.tasks_of(n)} for n in told.nodes]
    plain: dict[str, Any] = {**told.status.to_dict(), "nodes": nodes}
    if told.health is not None:
        plain["reasons"] = [reason.to_dict() for reason in told.health.reasons]
    if told.alerts is not None:
        plain["alerts"] = [alert.to_dict() for alert in told.alerts]
    if with_workers:
        plain["workers"] = [worker.to_dict() for worker in told.workers]
    return plain


def grids(told: Overview, *, with_workers: bool) -> list[Table]:
    """The facts, and below them the nodes where there are any."""
    found = [show.facts_grid(_facts(told))]
    if told.nodes:
        rows = list(_rows(told, with_workers=with_workers))
        found.append(show.table_grid(_COLUMNS, rows))
    return found


def _facts(told: Overview) -> Iterator[tuple[str, Any]]:
    found = told.status
    yield "status", found.status
    yield "health", _health(told)
    yield "alerts", _alerts(told)
    yield "manager", f"{told.url}, version {found.version or 'unknown'}"
    yield "up for", show.took(found.uptime_s)
    yield "nodes", f"{found.online_nodes} online of {found.total_nodes}"
    yield "workers", f"{found.active_workers} active of {found.total_workers}"
    yield "tasks", _tasks(found)
    yield "memory", _memory(found)
    yield "GPU", show.percent(found.gpu_utilization)


def _health(told: Overview) -> str:
    if told.health is None:
        return ""
    reasons = [reason.title or reason.rule for reason in told.health.reasons]
    word = told.health.status
    return f"{word} ({_some(reasons)})" if reasons else word


def _alerts(told: Overview) -> str:
    if not told.alerts:
        return ""
    titles = [alert.title or alert.rule for alert in told.alerts]
    return f"{len(titles)} open: {_some(titles)}"


def _some(words: Sequence[str]) -> str:
    shown = "; ".join(words[:_FEW])
    return shown if len(words) <= _FEW else f"{shown}; and {len(words) - _FEW} more"


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


def _rows(told: Overview, *, with_workers: bool) -> Iterator[Sequence[Any]]:
    for node in told.nodes:
        yield (
            node.hostname or node.node_id,
            node.node_type,
            _status(node),
            show.percent(node.cpu_percent),
            show.percent(node.memory_percent),
            show.percent(node.disk_percent),
            gpus(node.gpus),
            show.count(node.workers),
            told.tasks_of(node),
            _ago(show.ago(node.last_heartbeat)),
        )
        for worker in told.workers_of(node) if with_workers else ():
            yield _worker(worker)


def _status(node: NodeInfo) -> str:
    if node.scheduling in _TAKES_WORK:
        return node.status
    return f"{node.status}, {node.scheduling}"


def _ago(words: str) -> str:
    return f"{words} ago" if words else ""


def _worker(worker: WorkerInfo) -> Sequence[Any]:
    tasks, heard = show.count(worker.current_tasks), show.ago(worker.last_heartbeat)
    name, serves = worker.name or worker.worker_id, ", ".join(worker.job_types)
    shown = f"- {name}: {worker.error}" if worker.error else f"- {name}"
    return (shown, "", worker.status, "", "", "", "", serves, tasks, _ago(heard))
