"""The smallest changes that would start a waiting task, in words and as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, islice

from corral.scheduler.events import WaitingTask, WorkerBroken
from corral.scheduler.explain.obstacles import (
    PASSING,
    ObstacleFinder,
    WorkerObstacles,
    gib,
    running_on,
)
from corral.scheduler.explain.values import Obstacle, Remedy
from corral.scheduler.plan import Reason
from corral.scheduler.world.fleet import FleetWorker

_SMALLNESS = (
    "wait",
    "uncordon",
    "reset_breaker",
    "unpin",
    "free_memory",
    "ask_less",
    "tolerate",
    "label",
    "more_memory",
    "repair",
    "worker",
)
"""From what costs nobody anything to what needs another machine."""
_MOST = 6


def changes(
    finder: ObstacleFinder,
    looks: Sequence[WorkerObstacles],
    reason: Reason,
    in_s: float | None,
) -> tuple[Remedy, ...]:
    """What would start the task, the smallest first; `in_s` is when it starts anyway.

    Looks only at workers: what keeps a task from all of them comes before.
    """
    found = [*_of_workers(finder, looks, in_s), *_of_broken(finder)]
    if not any(change.kind == "wait" for change in found) or finder.line.only is None:
        found.append(_launch(finder.task, reason))
    found.sort(key=lambda change: _SMALLNESS.index(change.kind))
    return tuple(found[:_MOST])


def _of_workers(
    finder: ObstacleFinder, looks: Sequence[WorkerObstacles], in_s: float | None
) -> Iterable[Remedy]:
    able = [(look.worker, look.terms) for look in looks if look.terms is not None]
    if able:
        first, _ = min(able, key=lambda a: (a[1].total_s, a[0].worker_id))
        yield _wait(finder, first, in_s)
    near = [(look.worker, _lasting(look)) for look in looks if look.terms is None]
    near = [(worker, found) for worker, found in near if _is_ours(found)]
    fewest = min((len(found) for _, found in near), default=0)
    near = [(worker, found) for worker, found in near if len(found) == fewest]
    near.sort(key=lambda n: (_sizes(n[1]), n[0].worker_id))
    for _, same in islice(groupby(near, key=lambda n: _subject(*n)), _MOST):
        yield _together(finder, *next(same))


def _lasting(look: WorkerObstacles) -> list[Obstacle]:
    return [o for o in look.obstacles if o.word not in PASSING]


def _is_ours(found: Sequence[Obstacle]) -> bool:
    """Could it be a worker for this task at all?"""
    return not any(obstacle.word in ("type", "not_asked") for obstacle in found)


def _sizes(found: Sequence[Obstacle]) -> list[tuple[str, float]]:
    return [(o.word, float(o.details.get("short_mb", 0.0))) for o in found]


def _subject(worker: FleetWorker, found: Sequence[Obstacle]) -> tuple[str, ...]:
    """The same change helps all workers of a node, unless memory is short."""
    words = tuple(obstacle.word for obstacle in found)
    is_short = any("short_mb" in obstacle.details for obstacle in found)
    return (*words, worker.worker_id if is_short else worker.node_id)


def _wait(finder: ObstacleFinder, first: FleetWorker, in_s: float | None) -> Remedy:
    """Time alone will do: for a worker to be free, or its turn to come."""
    now, task = finder.now, finder.task
    ahead = finder.line.queue.position(task)
    left_s = first.residual_s(now)
    running = running_on(first)
    held_up = _held_up(finder, first)
    if held_up is not None:
        running = list(held_up.details.get("tasks", ()))
    details = {"worker_id": first.worker_id, "tasks": running, "ahead": ahead}
    if held_up is not None and len(running) != 1:
        words = f"would start on {first.worker_id} when what it needs is given back"
    elif first.has_room and held_up is None:
        words = f"would start on {first.worker_id} at once when its turn comes"
    elif len(running) == 1:
        words = f"would start on {first.worker_id} when task {running[0]} ends"
    else:
        words = f"would start on {first.worker_id} when what it runs ends"
    if ahead:
        words = f"its turn comes after {ahead} other task(s); then it {words}"
    known_s = in_s if in_s is not None else (left_s if first.free_at else None)
    words += f", in about {known_s:.0f} s" if known_s else ""
    return Remedy("wait", words, details, in_s=known_s)


def _held_up(finder: ObstacleFinder, worker: FleetWorker) -> Obstacle | None:
    """What this task needs and others have there."""
    found = finder.obstacles(worker) if finder.task.need is not None else []
    return next((o for o in found if o.word in ("in_use", "kept")), None)


def _together(
    finder: ObstacleFinder, worker: FleetWorker, found: Sequence[Obstacle]
) -> Remedy:
    """One change for all that keeps this worker from the task."""
    parts = [_CHANGES[obstacle.word](finder, worker, obstacle) for obstacle in found]
    first = max(parts, key=lambda change: _SMALLNESS.index(change.kind))
    running = running_on(worker)
    words = " and ".join(part.message for part in parts)
    words += f"; would start on {worker.worker_id}"
    if worker.open_orders >= worker.slots:
        words += f" when task {running[0]} ends" if len(running) == 1 else " when free"
    details = {"worker_id": worker.worker_id, "node_id": worker.node_id}
    for part in parts:
        details |= part.details
    commands = [part.command for part in parts if part.command]
    command = " && ".join(commands) if len(commands) == len(parts) else None
    return Remedy(first.kind, words, details, command)


def _uncordon(finder: ObstacleFinder, worker: FleetWorker, found: Obstacle) -> Remedy:
    words = f"uncordon node {worker.node_id} ({found.details['held']})"
    return Remedy("uncordon", words, found.details, f"corral uncordon {worker.node_id}")


def _label(finder: ObstacleFinder, worker: FleetWorker, found: Obstacle) -> Remedy:
    missing = found.details["missing"]
    named = ", ".join(missing)
    words = f"add label {named} to node {worker.node_id} or drop it from the task"
    command = f"corral label {worker.node_id} {' '.join(missing)}"
    return Remedy("label", words, {"labels": missing}, command)


def _tolerate(finder: ObstacleFinder, worker: FleetWorker, found: Obstacle) -> Remedy:
    taints = found.details["taints"]
    named = ", ".join(taints)
    words = f"let the task tolerate {named} or take it off node {worker.node_id}"
    off = " ".join(f"{taint.partition('=')[0]}-" for taint in taints)
    return Remedy(
        "tolerate", words, found.details, f"corral taint {worker.node_id} {off}"
    )


def _more_memory(
    finder: ObstacleFinder, worker: FleetWorker, found: Obstacle
) -> Remedy:
    short_mb, needs_mb = found.details["short_mb"], found.details["needs_mb"]
    given = f"give {worker.worker_id} {gib(needs_mb)} for models"
    words = f"needs {gib(short_mb)} more: {given}"
    return Remedy("more_memory", words, found.details)


def _free_memory(
    finder: ObstacleFinder, worker: FleetWorker, found: Obstacle
) -> Remedy:
    short_mb, others_mb = found.details["short_mb"], found.details.get("others_mb")
    used = f"the {gib(others_mb)}" if others_mb is not None else "what"
    words = (
        f"needs {gib(short_mb)} more: free it of {used} that other "
        f"processes use on the card of {worker.worker_id}"
    )
    return Remedy("free_memory", words, found.details)


def _unpin(finder: ObstacleFinder, worker: FleetWorker, found: Obstacle) -> Remedy:
    """The fewest pins that are in the way."""
    left_mb = found.details["short_mb"]
    names: list[str] = []
    for name in sorted(
        found.details["models"], key=finder.estimates.size_mb, reverse=True
    ):
        if left_mb > 0 or not names:
            names.append(name)
            left_mb -= finder.estimates.size_mb(name)
    words = (
        f"needs {gib(found.details['short_mb'])} more: "
        f"unpin {', '.join(names)} on {worker.worker_id}"
    )
    commands = [f"corral models unpin {name} {worker.worker_id}" for name in names]
    details = {**found.details, "models": names}
    return Remedy("unpin", words, details, " && ".join(commands))


def _ask_less(finder: ObstacleFinder, worker: FleetWorker, found: Obstacle) -> Remedy:
    what, short = found.details["lacks"], found.details["short"]
    unit = {"cpu": "thousandths of a processor", "gpus": "GPU(s)"}.get(what, "MB")
    if what in ("gpu_share", "gpu_kind"):
        unit = "thousandths of a GPU" if what == "gpu_share" else "GPU(s) of that kind"
    name = str(what).replace("_", " ")
    words = f"ask for {short} {unit} less ({name}), or a node with so much more"
    return Remedy("ask_less", words, found.details)


_CHANGES: dict[str, Callable[[ObstacleFinder, FleetWorker, Obstacle], Remedy]] = {
    "node_held": _uncordon,
    "node_labels": _label,
    "taints": _tolerate,
    "model_too_large": _more_memory,
    "foreign_memory": _free_memory,
    "pinned_models": _unpin,
    "too_little": _ask_less,
}


def _of_broken(finder: ObstacleFinder) -> Iterable[Remedy]:
    task, fleet = finder.task, finder.fleet
    for broken in sorted(fleet.broken.values(), key=lambda b: b.worker_id):
        if task.job_type in broken.job_types and finder.line.only in (
            None,
            broken.worker_id,
        ):
            yield _mend(broken)
    nodes = {a.node_id for a in fleet.away.values() if task.job_type in a.job_types}
    for node_id in sorted(nodes):
        held = fleet.place(node_id).held
        if held is not None:
            words = f"uncordon node {node_id} ({held}): its workers come back"
            details = {"node_id": node_id, "held": held}
            yield Remedy("uncordon", words, details, f"corral uncordon {node_id}")


def _mend(broken: WorkerBroken) -> Remedy:
    details = {"worker_id": broken.worker_id, "error": broken.error}
    if broken.reason == "breaker_open":
        words = f"mend worker {broken.worker_id} ({broken.error}) and reset its breaker"
        command = f"corral breaker reset {broken.node_id or 'NODE'}"
        return Remedy("reset_breaker", words, details, command)
    words = f"mend worker {broken.worker_id}: {broken.error}"
    return Remedy("repair", words, details)


def _launch(task: WaitingTask, reason: Reason) -> Remedy:
    more = "another" if reason.reason == "workers_busy" else "a"
    words = f"start {more} worker for '{task.job_type}'"
    if task.model is not None and reason.reason == "model_too_large":
        words += f" with {gib(reason.details['needs_mb'])} for models"
    wanted = [f"{key}={value}" for key, value in _labels(task)]
    words += f" on a node with {', '.join(wanted)}" if wanted else ""
    if task.worker_id is not None:
        words = f"start worker {task.worker_id} again: the task is for it alone"
    command = f"corral worker launch CLASS --job-type {task.job_type}"
    return Remedy(
        "worker",
        words,
        {"job_type": task.job_type},
        None if task.worker_id else command,
    )


def _labels(task: WaitingTask) -> tuple[tuple[str, str], ...]:
    return task.constraint.labels if task.constraint is not None else ()
