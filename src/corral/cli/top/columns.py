"""The columns of the four lists of `corral top`: tasks, workers, nodes and GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corral.cli.terminal import output
from corral.cli.top import cells
from corral.cli.top.cells import REST, Column, Sheet, number, plain, state, tail
from corral.cli.top.picture import is_gone
from corral.cli.top.row import GpuRow, NodeRow, TaskRow, WorkerRow

if TYPE_CHECKING:
    from rich.text import Text

_LATE_S = 15.0


def _use(percent: float | None, width: int) -> Text:
    label = "   - " if percent is None else f"{percent:3.0f} %"
    return cells.bar(percent, width - 6, label)


def _memory(row: GpuRow, width: int) -> Text:
    total_mb = row.card.get("memory_total_mb")
    if row.memory is None or not total_mb:
        return cells.bar(None, width - 9, "       -")
    used = (row.card.get("memory_used_mb") or 0.0) / 1024
    label = f"{used:.0f}/{total_mb / 1024:.0f} GB"
    return cells.bar(row.memory, width - 10, f"{label:>9}")


def _degrees(row: GpuRow) -> str:
    told = row.card.get("temperature_c")
    return "" if told is None or not row.is_now else f"{told:.0f}"


def _model(row: GpuRow) -> str:
    """The card's name without words that all such cards have."""
    name = str(row.card.get("name") or "")
    return name.removeprefix("NVIDIA ").removeprefix("Simulated ")


def _holder(row: GpuRow, width: int) -> Text:
    return tail(row.note, width) if row.note == row.owner else plain(row.note, width)


def _ended(row: WorkerRow) -> int:
    return int(row.figures.get("tasks_completed") or 0)


def _failed(row: WorkerRow) -> int:
    return int(row.figures.get("tasks_failed") or 0)


def _note(row: TaskRow, width: int) -> Text:
    return plain(row.where, width, "red" if row.task.error else "")


def _heard(row: NodeRow, width: int) -> Text:
    is_late = row.heard_s > _LATE_S and row.node.status != "online"
    return plain(output.took(row.heard_s), width, "red" if is_late else "")


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
        Column(
            "TYPE",
            lambda r, w: plain(r.task.task_type, w),
            lambda r: r.task.task_type,
            12,
            24,
        ),
        Column(
            "STATE",
            lambda r, w: state(r.task.status, w),
            lambda r: r.task.status,
            9,
            10,
        ),
        Column(
            "PRI",
            lambda r, w: number(r.task.priority, w),
            lambda r: -r.task.priority,
            0,
            4,
            is_right=True,
        ),
        Column(
            "TRY",
            lambda r, w: number(r.task.attempt, w),
            lambda r: -r.task.attempt,
            0,
            3,
            is_right=True,
        ),
        Column(
            "AGE",
            lambda r, w: number(output.took(r.age_s), w),
            lambda r: -r.age_s,
            6,
            7,
            is_right=True,
        ),
        Column(
            "RAN",
            lambda r, w: number(output.took(r.ran_s), w),
            lambda r: -(r.ran_s or 0),
            6,
            7,
            is_right=True,
        ),
        Column("WHERE", _note, lambda r: r.where, REST, REST),
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
            *(f"{k}={v}" for k, v in r.task.labels.items()),
        )
    ),
)

WORKERS: Sheet[WorkerRow] = Sheet(
    "workers",
    (
        Column(
            "WORKER",
            lambda r, w: plain(r.worker.name or r.worker.worker_id, w, "bold"),
            lambda r: r.worker.name,
            14,
            18,
        ),
        Column("NODE", lambda r, w: plain(r.node, w), lambda r: r.node, 12, 14),
        Column(
            "STATE",
            lambda r, w: state(r.worker.status, w),
            lambda r: r.worker.status,
            8,
            8,
        ),
        Column(
            "TASKS",
            lambda r, w: number(f"{r.tasks}/{r.worker.concurrency}", w),
            lambda r: -r.tasks,
            5,
            5,
            is_right=True,
        ),
        Column(
            "DONE",
            lambda r, w: number(_ended(r), w),
            lambda r: -_ended(r),
            5,
            6,
            is_right=True,
        ),
        Column(
            "FAILED",
            lambda r, w: number(_failed(r) or "", w, "red"),
            lambda r: -_failed(r),
            6,
            6,
            is_right=True,
        ),
        Column(
            "SERVES",
            lambda r, w: plain(", ".join(r.worker.job_types), w),
            lambda r: r.worker.job_types,
            REST,
            14,
        ),
        Column(
            "MODELS",
            lambda r, w: plain(r.note, w, "red" if r.worker.error else ""),
            lambda r: r.note,
            0,
            REST,
        ),
    ),
    key=lambda r: r.worker.worker_id,
    words=lambda r: " ".join(
        (
            r.worker.worker_id,
            r.worker.name,
            r.node,
            r.worker.status,
            r.note,
            *r.worker.job_types,
        )
    ),
)

NODES: Sheet[NodeRow] = Sheet(
    "nodes",
    (
        Column("NODE", lambda r, w: plain(r.name, w, "bold"), lambda r: r.name, 12, 14),
        Column("STATE", lambda r, w: state(r.state, w), lambda r: r.state, 9, 12),
        Column(
            "CPU",
            lambda r, w: _use(_alive(r, r.node.cpu_percent), w),
            lambda r: -(r.node.cpu_percent or 0),
            12,
            14,
        ),
        Column(
            "TREND",
            lambda r, w: cells.trend(r.cpu, w, 100.0),
            lambda r: -(r.node.cpu_percent or 0),
            0,
            10,
        ),
        Column(
            "MEMORY",
            lambda r, w: _use(_alive(r, r.node.memory_percent), w),
            lambda r: -(r.node.memory_percent or 0),
            12,
            14,
        ),
        Column(
            "DISK",
            lambda r, w: number(output.percent(_alive(r, r.node.disk_percent)), w),
            lambda r: -(r.node.disk_percent or 0),
            5,
            5,
            is_right=True,
        ),
        Column(
            "TASKS",
            lambda r, w: number(r.tasks, w),
            lambda r: -r.tasks,
            5,
            5,
            is_right=True,
        ),
        Column("HEARD", _heard, lambda r: -r.heard_s, REST, REST),
    ),
    key=lambda r: r.node.node_id,
    words=lambda r: " ".join((r.node.node_id, r.name, r.state, r.node.node_type)),
)

GPUS: Sheet[GpuRow] = Sheet(
    "gpus",
    (
        Column(
            "NODE",
            lambda r, w: plain(r.node.hostname or r.node.node_id, w),
            lambda r: r.node.hostname,
            8,
            12,
        ),
        Column(
            "GPU",
            lambda r, w: number(r.card.get("index"), w, "bold"),
            lambda r: r.card.get("index") or 0,
            3,
            3,
            is_right=True,
        ),
        Column(
            "NAME",
            lambda r, w: plain(_model(r), w),
            _model,
            0,
            14,
        ),
        Column("USE", lambda r, w: _use(r.use, w), lambda r: -(r.use or 0), 13, 14),
        Column(
            "TREND",
            lambda r, w: cells.trend(r.line, w, 100.0),
            lambda r: -(r.use or 0),
            8,
            10,
        ),
        Column("MEMORY", _memory, lambda r: -(r.memory or 0), 17, 18),
        Column(
            "°C",
            lambda r, w: number(_degrees(r), w),
            lambda r: -(r.card.get("temperature_c") or 0),
            3,
            3,
            is_right=True,
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


def _alive(row: NodeRow, value: float | None) -> float | None:
    """What a lost node told last is no longer true."""
    return None if is_gone(row.node) else value
