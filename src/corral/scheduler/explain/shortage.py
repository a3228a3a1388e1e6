"""What a task with needs is short of on a node, and what ends a general obstacle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corral.core.tasks.needs import LEAST, WHOLE, Need
from corral.scheduler.decide.cost import CostModel
from corral.scheduler.events import WaitingTask
from corral.scheduler.explain.values import Obstacle, Remedy
from corral.scheduler.place.capacity import Lack, Shortage
from corral.scheduler.plan import Reason
from corral.scheduler.world.fleet import FleetWorker
from corral.scheduler.world.line import TaskLine
from corral.scheduler.world.share import GROUP_KEY, AttemptUse

NEVER = "too_little"
"""Says that a node would not have enough if nothing ran there."""
NOT_NOW = "in_use"
"""Says that what it needs is with other tasks."""
FOREIGN = "foreign_memory"
KEPT = "kept"
_MOST = 6


def lack(
    costs: CostModel,
    task: WaitingTask,
    line: TaskLine,
    worker: FleetWorker,
    now: float,
) -> Obstacle | None:
    need, leases, node_id = task.need, costs.leases, worker.node_id
    if need is None:
        return None
    if leases.node(node_id) is None:
        words = f"node {node_id} has not said yet what it has"
        return Obstacle(NOT_NOW, words, {"node_id": node_id})
    short = leases.short(worker.worker_id, node_id, need)
    if short is None:
        return _kept(costs, line, worker, now)
    details: dict[str, Any] = {
        "node_id": node_id,
        "lacks": str(short.lack),
        "short": short.lacking,
    }
    empty = leases.short(worker.worker_id, node_id, need, is_empty=True)
    if empty is None:
        tasks = [task_id for task_id, _ in leases.on(node_id)]
        words = f"node {node_id} {_words(need, short)} beside {_running(tasks)}"
        return Obstacle(NOT_NOW, words, {**details, "tasks": tasks})
    details["short"] = empty.lacking
    unused = leases.short(
        worker.worker_id, node_id, need, is_empty=True, of_others=True
    )
    if unused is None:
        words = f"node {node_id} {_words(need, empty)}: other processes use it"
        return Obstacle(FOREIGN, words, {**details, "short_mb": float(empty.lacking)})
    return Obstacle(NEVER, f"node {node_id} {_words(need, empty)}", details)


def _kept(
    costs: CostModel, line: TaskLine, worker: FleetWorker, now: float
) -> Obstacle | None:
    if not costs.holds.is_blocked(worker.node_id, line, now):
        return None
    holder = costs.holds.holder(worker.node_id)
    head = holder.queue.head() if holder is not None else None
    first = head.task_id if head is not None else "another"
    words = f"node {worker.node_id} is kept for task {first}, which goes first"
    return Obstacle(KEPT, words, {"node_id": worker.node_id, "task_id": first})


def _words(need: Need, short: Shortage) -> str:
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


def own_change(reason: Reason, out: Mapping[str, AttemptUse]) -> Remedy:
    """What would end a state that keeps a task from every worker.

    `out` is what counts against shares now, by task.
    """
    details = reason.details
    if reason.reason == "same_question":
        words = f"is answered when task {details['task_id']} has completed"
        return Remedy("wait", words, details)
    if reason.reason == "dependencies":
        named = ", ".join(details["depends_on"])
        words = f"starts when task(s) {named} have completed"
        return Remedy("dependencies", words, details)
    if reason.reason == "not_before":
        in_s = details["starts_in_s"]
        words = f"in {in_s:g} s, or now without run_after"
        return Remedy("run_after", words, details, in_s=in_s)
    if reason.reason == "type_paused":
        job_type = details["job_type"]
        command = f"corral job-type resume {job_type}"
        return Remedy("resume_type", f"resume job type '{job_type}'", details, command)
    if reason.reason == "quota":
        return _quota(reason, out)
    words = "let the cluster go on: POST /cluster/drain?resume=true"
    return Remedy("resume", words)


def _quota(reason: Reason, out: Mapping[str, AttemptUse]) -> Remedy:
    """More for its share or group, or less of it at work."""
    details = reason.details
    word = "group" if "group" in details else "share"
    name = details[word]
    if "gpu_seconds_per_day" in details:
        in_s, quota_s = details["starts_in_s"], details["gpu_seconds_per_day"]
        words = (
            f"raise the GPU-seconds of {name} from {quota_s:g}, or wait for midnight"
        )
        return Remedy("quota", words, details, in_s=in_s)
    most = details["max_running"]
    inside = sorted(
        task_id
        for task_id, use in out.items()
        for bucket in use.buckets
        if bucket.name in (name, f"{GROUP_KEY}={name}")
    )
    ends = f"task {inside[0]}" if len(inside) == 1 else "one of its tasks"
    words = f"raise the quota of {name} from {most}, or wait until {ends} ends"
    return Remedy("quota", words, {**details, "tasks": inside[:_MOST]})
