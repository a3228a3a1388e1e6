"""Why a waiting task gets no worker, in one stable word, in words and in figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from corral.core.nodes.labels import ANYWHERE
from corral.scheduler.events import WaitingTask, WorkerAway, WorkerBroken
from corral.scheduler.explain.obstacles import PASSING, ObstacleFinder
from corral.scheduler.explain.values import Obstacle
from corral.scheduler.plan import Reason
from corral.scheduler.world.fleet import Fleet, FleetWorker

_LOOK_AT = 64


def why_no_worker(finder: ObstacleFinder) -> Reason:
    task, line, fleet = finder.task, finder.line, finder.fleet
    ahead = line.queue.position(task)
    if line.only is not None:
        return _why_not_on(line.only, fleet, ahead)
    workers, job_type = fleet.workers.values(), task.job_type
    serving = [
        worker
        for group in line.groups
        for worker in group.workers.values()
        if not worker.is_held
    ]
    if serving and line.gang_size:
        return _why_no_gang(finder)
    if serving:
        return _why_not_now(finder, serving) or _busy(task, serving, ahead)
    able = [w for w in workers if job_type in w.types]
    out = [a for a in fleet.away.values() if job_type in a.job_types]
    return (
        _why_held(task, fleet, (*able, *out))
        or _why_not_there(task, fleet, able)
        or _why_too_large(finder, able)
        or _why_broken(task, fleet.broken.values())
        or _no_worker(job_type)
    )


def _why_not_now(
    finder: ObstacleFinder, serving: Sequence[FleetWorker]
) -> Reason | None:
    """There are workers with room, but none of them takes it."""
    free = list(islice((w for w in serving if w.has_room), _LOOK_AT))
    first: Obstacle | None = None
    for worker in free:
        found = finder.obstacles(worker)
        if not found:
            return None
        if first is None or _nearness(found[0]) < _nearness(first):
            first = found[0]
    if first is None:
        return None
    names = [w.worker_id for w in free]
    details = {**first.details, "workers": names}
    words = f"{len(names)} worker(s) have room, but {first.message}"
    return Reason(first.word, words, details)


def _nearness(found: Obstacle) -> int:
    """What ends by itself says more than what does not."""
    if found.word == "waits_for_holder":
        return 0
    return 1 if found.word in PASSING else 2


def _why_no_gang(finder: ObstacleFinder) -> Reason:
    """There is no place for all of its gang at once."""
    line, size = finder.line, finder.line.gang_size
    here = len(finder.costs.holds.members(line))
    if here < size:
        words = f"{size - here} of the {size} members of its gang are not here yet"
        return Reason("gang_incomplete", words, {"members": here, "size": size})
    nodes = {
        worker.node_id
        for group in line.groups
        for worker in group.workers.values()
        if worker.has_room and not finder.obstacles(worker)
    }
    words = f"its gang needs {size} nodes at once, and {len(nodes)} have room for it"
    return Reason("gang_room", words, {"nodes": sorted(nodes), "size": size})


def _why_too_large(
    finder: ObstacleFinder, workers: Iterable[FleetWorker]
) -> Reason | None:
    """Its model fits into no worker's memory."""
    found = [
        (worker.worker_id, obstacle)
        for worker in workers
        for obstacle in finder.obstacles(worker)[:1]
        if obstacle.word in ("model_too_large", "foreign_memory")
    ]
    if not found:
        return None
    # The one that lacks least; memory that others use may come back.
    worker_id, least = min(
        found, key=lambda f: (f[1].word == "model_too_large", f[1].details["short_mb"])
    )
    words = f"{least.message} on worker {worker_id}"
    return Reason(least.word, words, {**least.details, "worker_id": worker_id})


def _busy(task: WaitingTask, serving: Iterable[FleetWorker], ahead: int) -> Reason:
    names = sorted(w.worker_id for w in serving)
    return Reason(
        "workers_busy",
        f"all {len(names)} worker(s) for '{task.job_type}' are busy; "
        f"{ahead} task(s) stand before this one",
        {"workers": names, "ahead": ahead},
    )


def _why_held(
    task: WaitingTask, fleet: Fleet, workers: Iterable[FleetWorker | WorkerAway]
) -> Reason | None:
    """Its workers are on nodes that get nothing new now."""
    constraint = task.constraint or ANYWHERE
    nodes = {w.node_id: fleet.place(w.node_id) for w in workers}
    held = {
        node_id: place.held
        for node_id, place in sorted(nodes.items())
        if place.held is not None and place.admits(constraint)
    }
    return _held(held) if held else None


def _held(nodes: dict[str, str]) -> Reason:
    words = "; ".join(
        f"node {node_id} is held: {why}" for node_id, why in nodes.items()
    )
    return Reason("node_held", words, dict(nodes))


def _why_not_there(
    task: WaitingTask, fleet: Fleet, workers: Iterable[FleetWorker]
) -> Reason | None:
    """Those who serve its type are on nodes it may not go to."""
    constraint = task.constraint or ANYWHERE
    places = {w.node_id: fleet.place(w.node_id) for w in workers}
    if not places:
        return None
    if any(place.admits(constraint) for place in places.values()):
        return None
    lacking = {n: constraint.missing(p.labels) for n, p in sorted(places.items())}
    if all(lacking.values()):
        wanted = [f"{key}={value}" for key, value in constraint.labels]
        words = f"no node with a worker for '{task.job_type}' has {', '.join(wanted)}"
        return Reason("node_labels", words, {"wanted": wanted, "missing": lacking})
    taints = {
        n: constraint.repelled(p.taints) for n, p in places.items() if not lacking[n]
    }
    named = sorted({taint for some in taints.values() for taint in some})
    words = f"its workers are on tainted nodes; it does not tolerate {', '.join(named)}"
    return Reason("taints", words, {"taints": taints})


def _why_broken(task: WaitingTask, broken: Iterable[WorkerBroken]) -> Reason | None:
    found = [b for b in broken if task.job_type in b.job_types]
    if not found:
        return None
    # One that is tried again and again says more than one that is left alone.
    first = min(found, key=lambda b: (b.reason != "worker_error", b.worker_id))
    return Reason(
        first.reason,
        f"worker {first.worker_id} for '{task.job_type}' cannot start: {first.error}",
        {b.worker_id: b.error for b in found},
    )


def _why_not_on(worker_id: str, fleet: Fleet, ahead: int) -> Reason:
    known = fleet.workers.get(worker_id) or fleet.away.get(worker_id)
    if known is not None:
        reason = fleet.place(known.node_id).held
        if reason is not None:
            return _held({known.node_id: reason})
    if worker_id in fleet.workers:
        text = f"worker {worker_id} is busy; {ahead} task(s) for it stand before"
        return Reason("workers_busy", text, {"workers": [worker_id]})
    broken = fleet.broken.get(worker_id)
    if broken is not None:
        text = f"worker {worker_id} cannot start: {broken.error}"
        return Reason(broken.reason, text, {worker_id: broken.error})
    text = f"it is for worker {worker_id}, which is not up"
    return Reason("no_worker", text, {"workers": [worker_id]})


def _no_worker(job_type: str) -> Reason:
    return Reason(
        "no_worker",
        f"no worker serves '{job_type}': start one with "
        f"'corral worker launch CLASS --job-type {job_type}'",
        {"job_type": job_type},
    )
