"""What the scheduler is told of a worker: that it can take orders, or why it cannot."""

from __future__ import annotations

from corral.core.worker import WorkerState
from corral.manager.state import WorkerLink
from corral.scheduler.value import WorkerAway, WorkerBroken, WorkerGone, WorkerReady


def ready(link: WorkerLink) -> WorkerReady:
    worker = link.worker
    return WorkerReady(
        worker.id,
        worker.node_id,
        frozenset(worker.spec.job_types),
        worker.spec.concurrency,
        len(link.orders),
    )


def out(link: WorkerLink) -> WorkerAway | WorkerBroken | WorkerGone:
    """It takes no orders: it rests with its node, it is broken, or it is not there."""
    worker = link.worker
    types = frozenset(worker.spec.job_types)
    if link.is_parked:
        return WorkerAway(worker.id, worker.node_id, types)
    if worker.state is not WorkerState.ERROR:
        return WorkerGone(worker.id)
    text = worker.error or "it did not say why"
    reason = "breaker_open" if link.breaker else "worker_error"
    return WorkerBroken(worker.id, types, text, reason)
