"""A worker on the terminal: its name, what it serves, has and does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corral.cli.terminal.output import Columns
    from corral.wire.workers import WorkerInfo


def name(worker: WorkerInfo) -> str:
    return worker.name or worker.worker_id


def tasks(worker: WorkerInfo) -> str:
    """How many it has, of how many it takes at once."""
    return f"{worker.current_tasks}/{worker.concurrency}"


def serves(worker: WorkerInfo) -> str:
    return ", ".join(worker.job_types)


def note(worker: WorkerInfo) -> str:
    """What is wrong with it, else the models it holds."""
    return worker.error or ", ".join(str(model) for model in worker.loaded_models)


def ended(worker: WorkerInfo) -> int:
    return int(worker.performance_metrics.get("tasks_completed") or 0)


def failed(worker: WorkerInfo) -> int:
    return int(worker.performance_metrics.get("tasks_failed") or 0)


COLUMNS: Columns[WorkerInfo] = {
    "WORKER": lambda worker: worker.worker_id,
    "NAME": lambda worker: worker.name,
    "STATUS": lambda worker: worker.status,
    "SERVES": serves,
    "NODE": lambda worker: worker.node_id,
    "TASKS": tasks,
    "RESTARTS": lambda worker: worker.restarts or None,
    "ERROR": lambda worker: worker.error,
}
