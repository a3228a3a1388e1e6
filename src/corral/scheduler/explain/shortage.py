"""What a task with needs is short of on one node, in words and figures."""

from __future__ import annotations

from typing import Any

from corral.core.tasks.needs import LEAST, WHOLE, Need
from corral.scheduler.decide.cost import Smith
from corral.scheduler.explain.values import Obstacle
from corral.scheduler.place.capacity import Lack, Short
from corral.scheduler.plan import Waiting
from corral.scheduler.world.fleet import Worker
from corral.scheduler.world.line import Family

NEVER = "too_little"
"""Says that a node would not have enough if nothing ran there."""
NOT_NOW = "in_use"
"""Says that what it needs is with other tasks."""
FOREIGN = "foreign_memory"
KEPT = "kept"


def lack(
    smith: Smith, task: Waiting, family: Family, worker: Worker, now: float
) -> Obstacle | None:
    need, stock, node_id = task.need, smith.stock, worker.node_id
    if need is None:
        return None
    if stock.yard(node_id) is None:
        words = f"node {node_id} has not said yet what it has"
        return Obstacle(NOT_NOW, words, {"node_id": node_id})
    short = stock.short(worker.worker_id, node_id, need)
    if short is None:
        return _kept(smith, family, worker, now)
    details: dict[str, Any] = {
        "node_id": node_id,
        "lacks": str(short.lack),
        "short": short.lacking,
    }
    empty = stock.short(worker.worker_id, node_id, need, is_empty=True)
    if empty is None:
        tasks = [task_id for task_id, _ in stock.on(node_id)]
        words = f"node {node_id} {_words(need, short)} beside {_running(tasks)}"
        return Obstacle(NOT_NOW, words, {**details, "tasks": tasks})
    details["short"] = empty.lacking
    unused = stock.short(worker.worker_id, node_id, need, is_empty=True, of_others=True)
    if unused is None:
        words = f"node {node_id} {_words(need, empty)}: other processes use it"
        return Obstacle(FOREIGN, words, {**details, "short_mb": float(empty.lacking)})
    return Obstacle(NEVER, f"node {node_id} {_words(need, empty)}", details)


def _kept(smith: Smith, family: Family, worker: Worker, now: float) -> Obstacle | None:
    if not smith.grants.is_blocked(worker.node_id, family, now):
        return None
    holder = smith.grants.holder(worker.node_id)
    head = holder.queue.head() if holder is not None else None
    first = head.task_id if head is not None else "another"
    words = f"node {worker.node_id} is kept for task {first}, which goes first"
    return Obstacle(KEPT, words, {"node_id": worker.node_id, "task_id": first})


def _words(need: Need, short: Short) -> str:
    match short.lack:
        case Lack.CPU:
            return f"is {short.lacking / WHOLE:g} processors short"
        case Lack.MEMORY:
            return f"is {short.lacking / 1024:.1f} GiB of memory short"
        case Lack.GPUS:
            return f"has {need.gpus - short.lacking} of {need.gpus} GPUs"
        case Lack.KIND:
            wanted = ", ".join(sorted(need.kinds)) or need.vendor
            return f"has {need.gpus - short.lacking} of {need.gpus} GPUs ({wanted})"
        case Lack.SHARE if need.share in (LEAST, WHOLE):
            return f"has {need.gpus - short.cards} of {need.gpus} GPUs free"
        case Lack.SHARE:
            return f"is {short.lacking / WHOLE:g} of a GPU short"
        case _:
            return f"is {short.lacking / 1024:.1f} GiB of GPU memory short"


def _running(tasks: list[str]) -> str:
    if not tasks:
        return "what runs there"
    shown = ", ".join(tasks[:3])
    more = f" and {len(tasks) - 3} more" if len(tasks) > 3 else ""
    return f"task{'s' if len(tasks) > 1 else ''} {shown}{more}"
