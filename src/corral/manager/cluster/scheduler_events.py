"""What the scheduler is told of a worker: that it can take orders, or why it cannot."""

from __future__ import annotations

from corral.core.nodes.gpu_choice import read_wish
from corral.core.nodes.worker import WorkerState
from corral.manager.cluster.state import Cluster, WorkerLink
from corral.scheduler.events import (
    HeldOrder,
    WorkerAway,
    WorkerBroken,
    WorkerGone,
    WorkerReady,
)


def worker_ready(cluster: Cluster, link: WorkerLink) -> WorkerReady:
    worker = link.worker
    return WorkerReady(
        worker.id,
        worker.node_id,
        frozenset(worker.spec.job_types),
        worker.spec.concurrency,
        len(link.orders),
        memory_mb=room_mb(link),
        models=frozenset(link.shelf.held),
        others_mb=link.shelf.others_mb,
        gpus=float(read_wish(worker.spec.gpus).count),
        is_telling=True,
        held=_held(cluster, link),
    )


def _held(cluster: Cluster, link: WorkerLink) -> tuple[HeldOrder, ...]:
    """What it has: after a restart of ours nobody else can say what may be stopped."""
    found = []
    for order in link.orders.values():
        known = sorted(order.left & cluster.tasks.keys())
        tasks = [cluster.tasks[task_id] for task_id in known]
        times = [t.assigned_at.timestamp() for t in tasks if t.assigned_at is not None]
        waiting = tuple(map(cluster.waiting, tasks))
        found.append(HeldOrder(waiting, min(times, default=0.0)))
    return tuple(sorted(found, key=lambda order: order.since))


def room_mb(link: WorkerLink) -> float | None:
    """What its models may take; nothing while it is not known which cards it has."""
    wants_cards = bool(read_wish(link.worker.spec.gpus))
    return 0.0 if wants_cards and link.shelf.room_mb is None else link.shelf.room_mb


def worker_out(link: WorkerLink) -> WorkerAway | WorkerBroken | WorkerGone:
    """It takes no orders: it rests with its node, it is broken, or it is not there."""
    worker = link.worker
    types = frozenset(worker.spec.job_types)
    if link.is_parked:
        return WorkerAway(worker.id, worker.node_id, types)
    if worker.state is not WorkerState.ERROR:
        return WorkerGone(worker.id)
    text = worker.error or "it did not say why"
    reason = "breaker_open" if link.breaker else "worker_error"
    return WorkerBroken(worker.id, types, text, reason, worker.node_id)
