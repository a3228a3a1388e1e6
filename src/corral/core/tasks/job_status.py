"""The words of the job API for our states, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from corral.core.nodes.worker import WorkerRecord, WorkerState
from corral.core.tasks.task import State

NONEXISTENT = "nonexistent"

JOB_STATUS: Mapping[State, str] = MappingProxyType(
    {
        State.QUEUED: "queued",
        State.ASSIGNED: "queued",
        State.RUNNING: "running",
        State.COMPLETED: "completed",
        State.FAILED: "failed",
        State.ERROR: "error",
        State.CANCELLED: "failed",
        State.TIMED_OUT: "failed",
    }
)

WORKER_STATUS: Mapping[WorkerState, str] = MappingProxyType(
    {
        WorkerState.STARTING: NONEXISTENT,
        WorkerState.READY: "idle",
        WorkerState.BUSY: "running",
        WorkerState.ERROR: "error",
        WorkerState.LOST: NONEXISTENT,
        WorkerState.STOPPED: "shutdown",
    }
)


def launch_status(worker: WorkerRecord) -> str:
    """pending, running, ready or failed: how far the launch of a worker is."""
    if worker.state is WorkerState.ERROR:
        return "failed"
    if worker.state in (WorkerState.READY, WorkerState.BUSY):
        return "ready"
    return "pending" if worker.incarnation is None else "running"
