"""The four lists of `corral top`, tasks, workers, nodes and GPUs: rows and columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from corral.cli.terminal import output
from corral.cli.top import cells
from corral.cli.top.cells import (
    REST,
    Column,
    Sheet,
    figures,
    plain,
    shares,
    states,
    tail,
    words,
)
from corral.cli.top.picture import ClusterView, FigureHistory
from corral.cli.words import gpu, node, task, worker

if TYPE_CHECKING:
    from rich.text import Text

    from corral.wire.nodes import NodeInfo
    from corral.wire.tasks import TaskInfo
    from corral.wire.workers import WorkerInfo

_LATE_S = 15.0
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
    def where(self) -> str:
        """Where it runs or ran, or what became of it."""
        if self.task.error is not None:
            return task.error(self.task.error)
        return f"{self.worker} on {self.node}" if self.node else self.worker


@dataclass(frozen=True, slots=True)
class WorkerRow:
    worker: WorkerInfo
    node: str


@dataclass(frozen=True, slots=True)
class NodeRow:
    node: NodeInfo
    tasks: int
    cpu: Line
    now: datetime

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
        if node.is_gone(self.node):
            return self.node.status
        told = gpu.state(self.card)
        if told != "offered":
            return told
        return self.owner or ("free" if self.is_now else "")


def _since(at: datetime | None, now: datetime) -> float:
    return max((now - at).total_seconds(), 0.0) if at else 0.0


def tasks(picture: ClusterView) -> list[TaskRow]:
    names = picture.node_names()
    known = {w.worker_id: w for w in picture.overview.workers}
    rows = []
    for told in picture.tasks:
        on = known.get(told.worker_id or "")
        name = worker.name(on) if on else told.worker_id or ""
        rows.append(
            TaskRow(told, name, names.get(on.node_id, "") if on else "", picture.at)
        )
    return rows


def workers(picture: ClusterView) -> list[WorkerRow]:
    names = picture.node_names()
    found = [
        WorkerRow(w, names.get(w.node_id, w.node_id or ""))
        for w in picture.overview.workers
    ]
    return sorted(found, key=lambda r: (r.node, r.worker.name, r.worker.worker_id))


def nodes(picture: ClusterView, history: FigureHistory) -> list[NodeRow]:
    busy: Counter[str | None] = Counter()
    for told in picture.overview.workers:
        busy[told.node_id] += told.current_tasks
    return [
        NodeRow(n, busy[n.node_id], history.line("cpu", n.node_id), picture.at)
        for n in picture.overview.nodes
        if n.status != "left"
    ]


def cards(picture: ClusterView, history: FigureHistory) -> list[GpuRow]:
    owners = gpu.owners(picture.overview.workers)
    return [
        GpuRow(
            on,
            card,
            worker.name(owners[card["id"]]) if card["id"] in owners else "",
            history.line("gpu", str(card["id"])),
            bool(on.gpus) and not node.is_gone(on),
        )
        for on in picture.overview.nodes
        for card in history.cards(on)
        if on.status != "left"
    ]


def _memory(row: GpuRow, width: int) -> Text:
    total_mb = row.card.get("memory_total_mb")
    if row.memory is None or not total_mb:
        return cells.bar(None, width - 9, "       -")
    label = gpu.of_memory(row.card.get("memory_used_mb") or 0.0, total_mb)
    return cells.bar(row.memory, width - 10, f"{label:>9}")


def _holder(row: GpuRow, width: int) -> Text:
    return tail(row.note, width) if row.note == row.owner else plain(row.note, width)


def _ran_s(row: TaskRow) -> float | None:
    return task.ran_s(row.task, row.now)


def _heard(row: NodeRow, width: int) -> Text:
    is_late = row.heard_s > _LATE_S and row.node.status != "online"
    heard = node.heartbeat(row.node, row.now)
    return plain(heard, width, "red" if is_late else "")


def _alive(row: NodeRow, value: float | None) -> float | None:
    """What a lost node told last is no longer true."""
    return None if node.is_gone(row.node) else value


TASKS: Sheet[TaskRow] = Sheet(
    "tasks",
    (
        Column(
            "TASK",
            lambda r, w: plain(r.task.task_id[-w:], w, "bold"),
            lambda r: r.task.task_id,
            8,
            36,
        ),
        words("TYPE", lambda r: r.task.task_type, 12, 24),
        states("STATUS", lambda r: r.task.status, 9, 10),
        figures("PRI", lambda r: r.task.priority, 0, 4),
        figures("ATTEMPT", lambda r: r.task.attempt, 0, 7),
        figures("AGE", lambda r: r.age_s, 6, 7, lambda r: output.took(r.age_s)),
        figures("RAN", _ran_s, 6, 7, lambda r: output.took(_ran_s(r))),
        words(
            "WHERE",
            lambda r: r.where,
            REST,
            REST,
            lambda r: "red" if r.task.error else "",
        ),
    ),
    key=lambda r: r.task.task_id,
    words=lambda r: " ".join(
        (
            r.task.task_id,
            r.task.task_type,
            r.task.status,
            r.where,
            r.worker,
            r.node,
            task.labels(r.task),
        )
    ),
)

WORKERS: Sheet[WorkerRow] = Sheet(
    "workers",
    (
        words("WORKER", lambda r: worker.name(r.worker), 14, 18, lambda r: "bold"),
        words("NODE", lambda r: r.node, 12, 14),
        states("STATUS", lambda r: r.worker.status, 8, 8),
        figures(
            "TASKS",
            lambda r: r.worker.current_tasks,
            5,
            5,
            lambda r: worker.tasks(r.worker),
        ),
        figures("DONE", lambda r: worker.ended(r.worker), 5, 6),
        figures(
            "FAILED",
            lambda r: worker.failed(r.worker),
            6,
            6,
            lambda r: worker.failed(r.worker) or "",
            style="red",
        ),
        words("SERVES", lambda r: worker.serves(r.worker), REST, 14),
        words(
            "MODELS",
            lambda r: worker.note(r.worker),
            0,
            REST,
            lambda r: "red" if r.worker.error else "",
        ),
    ),
    key=lambda r: r.worker.worker_id,
    words=lambda r: " ".join(
        (
            r.worker.worker_id,
            r.worker.name,
            r.node,
            r.worker.status,
            worker.note(r.worker),
            *r.worker.job_types,
        )
    ),
)

NODES: Sheet[NodeRow] = Sheet(
    "nodes",
    (
        words("NODE", lambda r: node.name(r.node), 11, 14, lambda r: "bold"),
        states("STATUS", lambda r: node.status(r.node), 9, 16),
        shares("CPU", lambda r: _alive(r, r.node.cpu_percent), 10, 14),
        Column(
            "TREND",
            lambda r, w: cells.trend(r.cpu, w, 100.0),
            lambda r: -(r.node.cpu_percent or 0),
            0,
            10,
        ),
        shares("MEMORY", lambda r: _alive(r, r.node.memory_percent), 10, 14),
        figures(
            "DISK",
            lambda r: _alive(r, r.node.disk_percent),
            5,
            5,
            lambda r: output.percent(_alive(r, r.node.disk_percent)),
        ),
        figures("TASKS", lambda r: r.tasks, 5, 5),
        Column("HEARTBEAT", _heard, lambda r: -r.heard_s, REST, REST),
    ),
    key=lambda r: r.node.node_id,
    words=lambda r: " ".join(
        (r.node.node_id, r.node.hostname, node.status(r.node), r.node.node_type)
    ),
)

GPUS: Sheet[GpuRow] = Sheet(
    "gpus",
    (
        words("NODE", lambda r: node.name(r.node), 8, 12),
        figures("GPU", lambda r: -r.card["index"], 3, 3, lambda r: r.card["index"]),
        words("NAME", lambda r: gpu.model(r.card), 0, 14),
        shares("USE", lambda r: r.use, 13, 14),
        Column(
            "TREND",
            lambda r, w: cells.trend(r.line, w, 100.0),
            lambda r: -(r.use or 0),
            8,
            10,
        ),
        Column("MEMORY", _memory, lambda r: -(r.memory or 0), 17, 18),
        figures(
            "°C",
            lambda r: r.card.get("temperature_c"),
            3,
            3,
            lambda r: gpu.degrees(r.card) if r.is_now else "",
        ),
        Column("WORKER", _holder, lambda r: r.note, REST, REST),
    ),
    key=lambda r: f"{r.node.node_id} {r.card.get('id')}",
    words=lambda r: " ".join(
        (
            r.node.node_id,
            r.node.hostname,
            str(r.card.get("name")),
            str(r.card.get("id")),
            r.note,
        )
    ),
)
