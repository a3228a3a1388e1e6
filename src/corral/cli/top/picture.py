"""What `corral top` shows: the cluster at one moment, and the figures before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from corral.cli.cluster import status as overview
from corral.cli.cluster.status import Overview
from corral.cli.words.node import is_gone
from corral.cli.words.node import name as name_of
from corral.errors import NotFound

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire.nodes import NodeInfo
    from corral.wire.tasks import TaskDetail, TaskInfo

_LISTED = 200
_ENDED = 50
_KEPT = 60
# Later wins: a task that goes on while we read is not told twice.
_LISTS = (
    ("queued", _LISTED),
    ("running", _LISTED),
    ("completed,failed,timed_out,cancelled", _ENDED),
)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster at one moment; `chosen` is all about the task that was asked for."""

    overview: Overview
    tasks: Sequence[TaskInfo]
    at: datetime
    chosen: TaskDetail | None = None

    def node_names(self) -> dict[str | None, str]:
        """What nodes are called, by their ids."""
        return {n.node_id: name_of(n) for n in self.overview.nodes}

    def cards(self) -> Iterator[tuple[NodeInfo, dict[str, Any]]]:
        for node in self.overview.nodes:
            for card in node.gpus:
                yield node, card


def read(client: Client, chosen: str | None = None) -> ClusterView:
    """Ask the manager for all of it."""
    told = overview.read_overview(client)
    tasks: dict[str, TaskInfo] = {}
    for status, limit in _LISTS:
        for task in client.list_tasks(status=status, limit=limit):
            tasks.pop(task.task_id, None)
            tasks[task.task_id] = task
    listed = sorted(tasks.values(), key=_rank)
    return ClusterView(told, listed, datetime.now(UTC), _detail(client, chosen))


def _rank(task: TaskInfo) -> tuple[int, float]:
    """What runs, longest first; what waits, longest first; what ended last."""
    place = {"running": 0, "queued": 1}.get(task.status, 2)
    at = task.completed_at if place == 2 else task.started_at or task.created_at
    seconds = at.timestamp() if at else 0.0
    return place, -seconds if place == 2 else seconds


def _detail(client: Client, task_id: str | None) -> TaskDetail | None:
    if task_id is None:
        return None
    try:
        return client.get_task(task_id)
    except NotFound:
        return None


class FigureHistory:
    """The last figures of cards, nodes and the whole, as pictures came."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], deque[float | None]] = {}
        self._cards: dict[str, list[dict[str, Any]]] = {}
        self._ended: int | None = None
        self._at: datetime | None = None
        self.per_s = 0.0

    def add(self, picture: ClusterView) -> None:
        for node, card in picture.cards():
            used = None if is_gone(node) else card.get("utilization_percent")
            self._put("gpu", str(card.get("id")), used)
        for node in picture.overview.nodes:
            if node.gpus:
                self._cards[node.node_id] = node.gpus
            used = None if is_gone(node) else node.cpu_percent
            self._put("cpu", node.node_id, used)
        status = picture.overview.status
        self._put("cluster", "waiting", float(status.queued_tasks))
        self._put("cluster", "ended", self._rate(picture))

    def line(self, kind: str, name: str) -> Sequence[float | None]:
        return self._lines.get((kind, name), ())

    def cards(self, node: NodeInfo) -> list[dict[str, Any]]:
        """Its cards; those it had, while a new manager has not heard of them yet."""
        has_told = node.gpus or node.cpu_percent is not None
        return node.gpus if has_told else self._cards.get(node.node_id, [])

    def _put(self, kind: str, name: str, value: float | None) -> None:
        line = self._lines.setdefault((kind, name), deque(maxlen=_KEPT))
        line.append(value)

    def _rate(self, picture: ClusterView) -> float:
        """Tasks that ended a second, since the picture before."""
        counts = picture.overview.status.tasks
        ended = sum(counts.get(s, 0) for s in ("completed", "failed", "timed_out"))
        if self._ended is not None and self._at is not None:
            passed_s = max((picture.at - self._at).total_seconds(), 0.001)
            # A new manager or a cleared database counts from less.
            self.per_s = max(ended - self._ended, 0) / passed_s
        self._ended, self._at = ended, picture.at
        return self.per_s
