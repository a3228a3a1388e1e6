"""Tasks that ran out of GPU memory: those like them ask for more from now on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from corral.core.tasks.needs import LEAST, NOTHING, WHOLE
from corral.scheduler.plan import OutOfMemory, Waiting
from corral.scheduler.world.relining import put_in, take_out

if TYPE_CHECKING:
    from corral.scheduler.world.picture import Picture

_MORE = 1.5


def raise_need(picture: Picture, event: OutOfMemory) -> None:
    """Learn from where it was how much is too little."""
    floor = _floor(picture, event)
    kind = (event.job_type, event.model)
    if floor <= picture.floors.get(kind, 0):
        return
    picture.floors[kind] = floor
    moved = take_out(picture, lambda _, t: (t.job_type, t.model) == kind)
    put_in(picture, [raised(picture.floors, task) for task in moved])


def _floor(picture: Picture, event: OutOfMemory) -> int:
    """Half as much again as it had; of a whole card, more than that card."""
    stock = picture.stock
    lease = stock.leases.get(event.task_id)
    if lease is None or not lease.need.gpus:
        worker = picture.fleet.workers.get(event.worker_id)
        most = stock.card_mb(event.worker_id, worker.node_id if worker else "")
        return most and most + 1
    most = stock.lease_mb(lease)
    had = lease.need.gpu_mb
    if not had or lease.need.share == WHOLE or had >= most:
        return most + 1
    return min(most, int(had * _MORE) + 1)


def raised(floors: Mapping[tuple[str, str | None], int], task: Waiting) -> Waiting:
    """The task with what those like it turned out to need."""
    floor = floors.get((task.job_type, task.model), 0) if floors else 0
    need = task.need or NOTHING
    if floor <= need.gpu_mb:
        return task
    more = replace(need, gpus=need.gpus or 1, share=need.share or LEAST, gpu_mb=floor)
    return replace(task, need=more)
