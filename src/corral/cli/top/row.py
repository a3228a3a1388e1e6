"""The rows of the four lists of `corral top`, made from a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from corral.cli.nodes.list import state_of
from corral.cli.terminal import output
from corral.cli.top.picture import ClusterView, FigureHistory, is_gone

if TYPE_CHECKING:
    from corral.wire.nodes import NodeInfo
    from corral.wire.tasks import TaskInfo
    from corral.wire.workers import WorkerInfo

Line = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class TaskRow:
    task: TaskInfo
    worker: str
    node: str
    now: datetime

    @property
    def age_s(self) -> float:
        return _since(self.task.created_at, self.now)

    @property
    def ran_s(self) -> float | None:
        if self.task.duration is not None:
            return self.task.duration
        is_on = self.task.status == "running" and self.task.started_at
        return _since(self.task.started_at, self.now) if is_on else None

    @property
    def where(self) -> str:
        """Where it runs or ran, or what became of it."""
        if self.task.error is not None:
            return f"{self.task.error.kind}: {self.task.error.message}"
        return f"{self.worker} on {self.node}" if self.node else self.worker


@dataclass(frozen=True, slots=True)
class WorkerRow:
    worker: WorkerInfo
    node: str
    now: datetime

    @property
    def tasks(self) -> int:
        return output.count(self.worker.current_tasks) or 0

    @property
    def figures(self) -> dict[str, Any]:
        told = self.worker.performance_metrics
        return told if isinstance(told, dict) else {}

    @property
    def note(self) -> str:
        return self.worker.error or ", ".join(self.models)

    @property
    def models(self) -> list[str]:
        held = self.worker.loaded_models
        return [str(m) for m in held] if isinstance(held, list) else []


@dataclass(frozen=True, slots=True)
class NodeRow:
    node: NodeInfo
    tasks: int
    cpu: Line
    now: datetime

    @property
    def name(self) -> str:
        return self.node.hostname or self.node.node_id

    @property
    def state(self) -> str:
        word = self.node.scheduling
        return (
            self.node.status if word in ("", "open") else f"{self.node.status}, {word}"
        )

    @property
    def heard_s(self) -> float:
        return _since(self.node.last_heartbeat, self.now)


@dataclass(frozen=True, slots=True)
class GpuRow:
    node: NodeInfo
    card: dict[str, Any]
    owner: str
    line: Line
    is_now: bool = True
    """Else what it told is of before."""

    @property
    def use(self) -> float | None:
        return self.card.get("utilization_percent") if self.is_now else None

    @property
    def memory(self) -> float | None:
        used, total = self.card.get("memory_used_mb"), self.card.get("memory_total_mb")
        if not self.is_now or used is None or not total:
            return None
        return float(100 * used / total)

    @property
    def note(self) -> str:
        """Who has it; what is wrong with it comes first."""
        if is_gone(self.node):
            return self.node.status
        told = state_of(self.card)
        if told != "offered":
            return told
        return self.owner or ("free" if self.is_now else "")


def _since(at: datetime | None, now: datetime) -> float:
    return max((now - at).total_seconds(), 0.0) if at else 0.0


def tasks(picture: ClusterView) -> list[TaskRow]:
    names = picture.node_names()
    known = {w.worker_id: w for w in picture.overview.workers}
    rows = []
    for task in picture.tasks:
        worker = known.get(task.worker_id or "")
        name = (worker.name if worker else "") or task.worker_id or ""
        node = names.get(worker.node_id, "") if worker else ""
        rows.append(TaskRow(task, name, node, picture.at))
    return rows


def workers(picture: ClusterView) -> list[WorkerRow]:
    names = picture.node_names()
    found = [
        WorkerRow(w, names.get(w.node_id, w.node_id or ""), picture.at)
        for w in picture.overview.workers
    ]
    return sorted(found, key=lambda r: (r.node, r.worker.name, r.worker.worker_id))


def nodes(picture: ClusterView, history: FigureHistory) -> list[NodeRow]:
    busy: Counter[str | None] = Counter()
    for worker in picture.overview.workers:
        busy[worker.node_id] += output.count(worker.current_tasks) or 0
    return [
        NodeRow(n, busy[n.node_id], history.line("cpu", n.node_id), picture.at)
        for n in picture.overview.nodes
        if n.status != "left"
    ]


def cards(picture: ClusterView, history: FigureHistory) -> list[GpuRow]:
    owners = {
        card.get("id"): w.name or w.worker_id
        for w in picture.overview.workers
        for card in w.gpu_info or ()
    }
    return [
        GpuRow(
            node,
            card,
            owners.get(card.get("id"), ""),
            history.line("gpu", str(card.get("id"))),
            bool(node.gpus) and not is_gone(node),
        )
        for node in picture.overview.nodes
        for card in history.cards(node)
        if node.status != "left"
    ]
