"""Tasks find their lines anew: shares or pauses changed, or a card was too small."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from corral.core.tasks.needs import LEAST, NOTHING, WHOLE
from corral.scheduler.events import (
    BOUND,
    OutOfMemory,
    ShareGone,
    ShareSet,
    ShareUsed,
    TasksTaken,
    WaitingTask,
)
from corral.scheduler.world.line import TaskLine

if TYPE_CHECKING:
    from corral.scheduler.world.picture import Picture

_MORE = 1.5


def pause(picture: Picture, job_type: str, is_paused: bool) -> None:
    """Let tasks of a type wait, or go on."""
    # Before the gate changes: those for one worker stand with tasks of other types.
    moved = take_out(
        picture, lambda f, t: f.only is not None and t.job_type == job_type
    )
    if is_paused:
        picture.gate.paused[job_type] = None
    else:
        picture.gate.paused.pop(job_type, None)
    put_in(picture, moved)
    lines = picture.lines.values()
    picture.gate.look([f for f in lines if f.job_type == job_type])


def share_out(
    picture: Picture, event: ShareSet | ShareGone | ShareUsed | TasksTaken
) -> None:
    shares = picture.gate.shares
    match event:
        case ShareUsed(name, day, gpu_seconds):
            shares.restore(name, day, gpu_seconds)
            picture.gate.look(list(picture.lines.values()))
        case TasksTaken():
            _count(picture, event)
        case ShareSet() | ShareGone():
            moved = take_out(picture, lambda f, t: f.key[0] != BOUND)
            if isinstance(event, ShareSet):
                shares.set(event.share)
            else:
                shares.drop(event.name)
            shares.recount()
            put_in(picture, moved)


def _count(picture: Picture, taken: TasksTaken) -> None:
    gate = picture.gate
    for task in taken.tasks:
        if task.need is not None and taken.node_id:
            where = (taken.worker_id, taken.node_id)
            picture.leases.note(task.task_id, *where, task.need, taken.cards)
        buckets = gate.buckets_of(task)
        if buckets and task.task_id not in gate.shares.out:
            run_s = picture.estimates.run_s(task.job_type, task.model, task.units)
            gate.begin((task,), buckets, run_s, taken.gpus)


def take_out(
    picture: Picture, should: Callable[[TaskLine, WaitingTask], bool]
) -> list[WaitingTask]:
    lines = list(picture.lines.values())
    found = [t for f in lines for t in f.queue.tasks() if should(f, t)]
    for task in found:
        picture.end(task.task_id)
        picture.unqueue(task.task_id)
    return found


def put_in(picture: Picture, tasks: Iterable[WaitingTask]) -> None:
    for task in tasks:
        picture.push(picture.line_of(task), task)


def raise_need(picture: Picture, event: OutOfMemory) -> None:
    """Learn from where it was how much is too little."""
    floor = _floor(picture, event)
    kind = (event.job_type, event.model)
    if floor <= picture.memory_floors.get(kind, 0):
        return
    picture.memory_floors[kind] = floor
    moved = take_out(picture, lambda _, t: (t.job_type, t.model) == kind)
    put_in(picture, [raised(picture.memory_floors, task) for task in moved])


def _floor(picture: Picture, event: OutOfMemory) -> int:
    """Half as much again as it had; of a whole card, more than that card."""
    leases = picture.leases
    lease = leases.by_task.get(event.task_id)
    if lease is None or not lease.need.gpus:
        worker = picture.fleet.workers.get(event.worker_id)
        most = leases.card_mb(event.worker_id, worker.node_id if worker else "")
        return most and most + 1
    most = leases.lease_mb(lease)
    had = lease.need.gpu_mb
    if not had or lease.need.share == WHOLE or had >= most:
        return most + 1
    return min(most, int(had * _MORE) + 1)


def raised(
    floors: Mapping[tuple[str, str | None], int], task: WaitingTask
) -> WaitingTask:
    """The task with what those like it turned out to need."""
    floor = floors.get((task.job_type, task.model), 0) if floors else 0
    need = task.need or NOTHING
    if floor <= need.gpu_mb:
        return task
    more = replace(need, gpus=need.gpus or 1, share=need.share or LEAST, gpu_mb=floor)
    return replace(task, need=more)
