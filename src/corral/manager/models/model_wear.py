"""Puts into the record that memory of a worker did not come back, and how much."""

from __future__ import annotations

from datetime import datetime

from corral.core.models.model import Worn
from corral.manager.cluster.state import WorkerLink
from corral.store.event import Event

MEMORY_NOT_FREED = "memory_not_freed"


def wear_event(link: WorkerLink, worn: Worn, now: datetime) -> Event:
    """A runner of this worker was started anew for it."""
    title = (
        f"{link.worker.spec.name}: {worn.left_mb:g} MB did not come back when model "
        f"{worn.model} of {worn.size_mb:g} MB was unloaded; its runner was started anew"
    )
    data = {
        "worker_id": link.id,
        "model": worn.model,
        "left_mb": worn.left_mb,
        "size_mb": worn.size_mb,
    }
    node_id = link.worker.node_id
    return Event(MEMORY_NOT_FREED, title, "warning", node_id, data=data, at=now)
