"""What keeps one worker from one waiting task: the filters of the plan, put in words.

Asks the code that decides (`WorkerGroup.serves`, `CostModel.cost`, `.room_for`), so
that an answer is never a second opinion.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from corral.core.nodes.labels import ANYWHERE
from corral.scheduler.decide.cost import CostModel
from corral.scheduler.events import WaitingTask, WorkerAway, WorkerBroken
from corral.scheduler.explain.shortage import lack
from corral.scheduler.explain.values import FREE, Obstacle, Terms, WorkerCandidate
from corral.scheduler.learn.estimate import Estimates
from corral.scheduler.world.fleet import Fleet, FleetWorker
from corral.scheduler.world.line import TaskLine

PASSING = frozenset({"busy", "memory_in_use", "waits_for_holder", "in_use", "kept"})
"""What time alone ends."""


def gib(mb: float) -> str:
    return f"{mb / 1024:.1f} GiB"


@dataclass(frozen=True, slots=True)
class WorkerObstacles:
    """A worker, all that keeps it from the task, and what the task costs there.

    The terms are there unless something lasting keeps it away.
    """

    worker: FleetWorker
    obstacles: list[Obstacle]
    terms: Terms | None

    def candidate(self) -> WorkerCandidate:
        found = self.obstacles
        first = found[0] if found else Obstacle(FREE, "could start it now")
        worker = self.worker
        return WorkerCandidate(
            worker.worker_id,
            worker.node_id,
            first.word,
            first.message,
            first.details,
            self.terms,
        )


@dataclass(frozen=True, slots=True)
class ObstacleFinder:
    """Judges workers for one task at one moment."""

    task: WaitingTask
    line: TaskLine
    fleet: Fleet
    estimates: Estimates
    costs: CostModel
    now: float
    _drops: dict[str, float | None] = field(default_factory=dict)

    def looks(self, most: int) -> list[WorkerObstacles]:
        """Workers, each looked at once; the likeliest if there are more than `most`."""
        workers = self.fleet.workers
        if len(workers) > most:
            holders = self.fleet.holders.get(self.task.model or "", {})
            free = (w for group in self.line.groups for w in group.free(1))
            likely = {w.worker_id: w for w in (*holders.values(), *free)}
            for group in self.line.groups:
                likely.update(islice(group.workers.items(), most))
            workers = dict(islice({**likely, **workers}.items(), most))
        return [self.look(worker) for worker in workers.values()]

    def look(self, worker: FleetWorker) -> WorkerObstacles:
        found = self.obstacles(worker)
        is_able = all(obstacle.word in PASSING for obstacle in found)
        return WorkerObstacles(worker, found, self.terms(worker) if is_able else None)

    def obstacles(self, worker: FleetWorker) -> list[Obstacle]:
        """All of them; those that time will not take away come first."""
        if self._is_for_another(worker):
            return [_for_one(self.line.only or "")]
        found = []
        if not self._serves(worker):
            found += self._of_kind(worker)
        held = self.fleet.place(worker.node_id).held
        if held is not None:
            found.append(_held(worker.node_id, held))
        if self.task.need is not None and (lack := self._lacks(worker)):
            found.append(lack)
        if all(obstacle.word in PASSING for obstacle in found):
            found += self._of_moment(worker)
        return found

    def _lacks(self, worker: FleetWorker) -> Obstacle | None:
        """What this task needs and cannot have there, now or ever."""
        return lack(self.costs, self.task, self.line, worker, self.now)

    def _is_for_another(self, worker: FleetWorker) -> bool:
        return self.line.only not in (None, worker.worker_id)

    def _serves(self, worker: FleetWorker) -> bool:
        return worker.group.serves(self.line, self._size_mb())

    def _size_mb(self) -> float:
        return self.estimates.size_mb(self.task.model) if self.task.model else 0.0

    # what does not change by itself -----------------------------------------------
    def _of_kind(self, worker: FleetWorker) -> list[Obstacle]:
        found = []
        if self.task.job_type not in worker.types:
            words = f"serves {_names(worker.types)}, not '{self.task.job_type}'"
            found.append(Obstacle("type", words, {"serves": sorted(worker.types)}))
        found += self._of_place(worker.node_id)
        if (too_large := self._of_size(worker)) is not None:
            found.append(too_large)
        return found

    def _of_place(self, node_id: str) -> list[Obstacle]:
        place = self.fleet.place(node_id)
        constraint = self.task.constraint or ANYWHERE
        found = []
        if missing := constraint.missing(place.labels):
            words = f"node {node_id} lacks {', '.join(missing)}"
            found.append(Obstacle("node_labels", words, {"missing": missing}))
        if taints := constraint.repelled(place.taints):
            words = f"node {node_id} is tainted {', '.join(taints)}"
            found.append(Obstacle("taints", words, {"taints": taints}))
        return found

    def _of_size(self, worker: FleetWorker) -> Obstacle | None:
        size_mb, memory_mb = self._size_mb(), worker.memory_mb
        if memory_mb is None or size_mb <= memory_mb:
            return None
        short_mb = size_mb - memory_mb
        details = {
            "needs_mb": size_mb,
            "memory_mb": memory_mb,
            "short_mb": short_mb,
            "others_mb": worker.others_mb,
        }
        words = (
            f"'{self.task.model}' needs {gib(size_mb)}, {gib(short_mb)} more than the "
            f"{gib(memory_mb)} there"
        )
        if worker.others_mb >= short_mb:
            words += f"; others use {gib(worker.others_mb)}"
            return Obstacle("foreign_memory", words, details)
        return Obstacle("model_too_large", words, details)

    # what passes ------------------------------------------------------------------
    def _of_moment(self, worker: FleetWorker) -> list[Obstacle]:
        found = []
        if worker.open_orders >= worker.slots:
            found.append(self._busy(worker))
        if self.task.model is None or self.task.model in worker.models:
            return found
        if self._drop_s(worker) is None:
            found.append(self._no_room(worker))
        elif not found and self._is_left(worker):
            found.append(self._holder_first(worker))
        return found

    def _drop_s(self, worker: FleetWorker) -> float | None:
        """What dropping models for its own costs; None when there is no room."""
        if worker.worker_id not in self._drops:
            victims = self.costs.victims(worker, self.now)
            found = self.costs.room_for(worker, self.task.model or "", victims)
            self._drops[worker.worker_id] = None if found is None else found[1]
        return self._drops[worker.worker_id]

    def _is_left(self, worker: FleetWorker) -> bool:
        """Is it better left to those that have its model?"""
        return self.costs.cost(worker, self.line, self.now) is None

    def _busy(self, worker: FleetWorker) -> Obstacle:
        running = running_on(worker)
        left_s = worker.residual_s(self.now)
        words = f"busy with {_tasks(running) if running else 'other work'}"
        if self.now >= worker.free_at > 0:
            words += ", longer than expected"
        elif worker.free_at:
            words += f", about {left_s:.0f} s more"
        details = {"tasks": running, "free_in_s": round(left_s, 1)}
        return Obstacle("busy", words, details)

    def _no_room(self, worker: FleetWorker) -> Obstacle:
        """Models that may not be dropped now take the memory it needs."""
        pins = self.fleet.pins.get(worker.worker_id, frozenset())
        pinned = [m for m in worker.models if m in pins]
        used = [m for m, h in worker.models.items() if h.in_use and m not in pins]
        kept_mb = sum(map(self.estimates.size_mb, {*pinned, *used}))
        pinned_mb = sum(map(self.estimates.size_mb, pinned))
        short_mb = self._size_mb() + kept_mb - (worker.memory_mb or 0.0)
        is_for_good = self._size_mb() + pinned_mb > (worker.memory_mb or 0.0)
        word = "pinned_models" if is_for_good else "memory_in_use"
        names = pinned if is_for_good else [*pinned, *used]
        words = f"'{self.task.model}' needs {gib(short_mb)} more beside {_names(names)}"
        if short_mb <= 0:
            words = f"it may hold no more models beside {_names(names)}"
        words += ", pinned there" if is_for_good else ", in use there"
        details = {"models": names, "short_mb": short_mb, "needs_mb": self._size_mb()}
        return Obstacle(word, words, details)

    def _holder_first(self, worker: FleetWorker) -> Obstacle:
        holders = self.fleet.holders.get(self.task.model or "", {}).values()
        first = min(holders, key=lambda h: (h.residual_s(self.now), h.worker_id))
        left_s = first.residual_s(self.now)
        load_s = self.estimates.load_s(self.task.model or "")
        words = (
            f"worker {first.worker_id}, which has '{self.task.model}', is through with "
            f"it sooner: free in about {left_s:.0f} s, a load here takes {load_s:.0f} s"
        )
        details = {"holder": first.worker_id, "free_in_s": left_s, "load_s": load_s}
        return Obstacle("waits_for_holder", words, details)

    def terms(self, worker: FleetWorker) -> Terms:
        """What it would cost there, counted from now."""
        task, known = self.task, self.estimates
        run_s = known.run_s(task.job_type, task.model, task.units) / worker.speed
        load_s = drop_s = score = 0.0
        if task.model is not None and task.model not in worker.models:
            load_s = known.load_s(task.model, worker.worker_id)
            drop_s = self._drop_s(worker) or 0.0
        if not worker.has_room:
            return Terms(worker.residual_s(self.now), load_s, drop_s, run_s, score)
        cost = self.costs.cost(worker, self.line, self.now)
        score = cost.score if cost is not None else 0.0
        return Terms(0.0, load_s, drop_s, run_s, score)


def running_on(worker: FleetWorker) -> list[str]:
    """The tasks it has, as far as its last orders tell."""
    last = worker.given[-worker.open_orders :] if worker.open_orders else ()
    return [task.task_id for decision in last for task in decision.tasks]


def out_of_work(found: WorkerBroken | WorkerAway, fleet: Fleet) -> WorkerCandidate:
    """A worker that should be there and is not."""
    if isinstance(found, WorkerBroken):
        words = f"cannot start: {found.error}"
        return WorkerCandidate(found.worker_id, found.node_id, found.reason, words)
    held = fleet.place(found.node_id).held
    word = "node_held" if held is not None else "worker_error"
    words = f"was stopped with node {found.node_id}: {held or 'not back yet'}"
    return WorkerCandidate(found.worker_id, found.node_id, word, words)


def _held(node_id: str, why: str) -> Obstacle:
    words = f"node {node_id} is held: {why}"
    return Obstacle("node_held", words, {"node_id": node_id, "held": why})


def _for_one(worker_id: str) -> Obstacle:
    words = f"the task is for worker {worker_id}"
    return Obstacle("not_asked", words, {"worker_id": worker_id})


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names)) or "nothing"


def _tasks(ids: list[str]) -> str:
    shown = ", ".join(ids[:3])
    more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
    return f"task{'s' if len(ids) > 1 else ''} {shown}{more}"
