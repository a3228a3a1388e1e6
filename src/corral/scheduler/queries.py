"""What the scheduler can tell of itself; nothing here changes anything."""

from __future__ import annotations

from collections import Counter

from corral.core.insight.learned import Figure, Learned
from corral.scheduler.decide.cost import CostModel
from corral.scheduler.events import NodeOffers, WaitingTask
from corral.scheduler.explain.explain import MOST_WORKERS, Explainer
from corral.scheduler.explain.forecast import Forecasts
from corral.scheduler.explain.values import ExpectedStart, TaskExplanation
from corral.scheduler.place.leases import Lease
from corral.scheduler.plan import Reason
from corral.scheduler.policy import AHEAD, Policy
from corral.scheduler.scaling.demand import Demand, demands
from corral.scheduler.world.fleet import FleetWorker
from corral.scheduler.world.line_changes import raised
from corral.scheduler.world.picture import Picture
from corral.scheduler.world.share import ShareHolder


class Queries:
    _policy: Policy
    _picture: Picture
    _costs: CostModel
    _explainer: Explainer
    forecasts: Forecasts

    def knows(self, task_id: str) -> bool:
        """Does this task wait here?"""
        return self._picture.find(task_id) is not None

    def dependents(self, task_id: str) -> tuple[str, ...]:
        """Tasks that still wait for this one."""
        return self._picture.delays.dependents(task_id)

    def waiting_count(self) -> int:
        return len(self._picture.line_by_task) + len(self._picture.delays)

    def waiting_by_type(self) -> Counter[str]:
        """How many tasks of each type wait, for whatever reason."""
        counts = Counter(task.job_type for task in self._picture.delays.tasks())
        for line in self._picture.lines.values():
            if line.only is None:
                counts[line.job_type] += len(line)
            else:
                counts.update(task.job_type for task in line.queue.tasks())
        return counts

    def waiting_ids(self, job_type: str) -> list[str]:
        """Every task of this type that waits, for whatever reason."""
        queued = (t for f in self._picture.lines.values() for t in f.queue.tasks())
        every = (*queued, *self._picture.delays.tasks())
        return [task.task_id for task in every if task.job_type == job_type]

    def estimated_wait_s(self, job_type: str) -> float | None:
        """Seconds until a task of this type submitted now would start, if known."""
        gate = self._picture.gate
        if job_type in gate.paused:
            return None
        groups = [g for g in self._picture.fleet.groups.values() if job_type in g.types]
        slots = sum(len(group.workers) * group.slots for group in groups)
        if not slots:
            return None
        mean = self._picture.estimates.recent_s(job_type)
        line = self._picture.lines.get(job_type)
        is_short = mean is not None and mean < self._policy.ahead_below_s
        if any(group.has_free(AHEAD if is_short else 1) for group in groups):
            return 0.0
        waiting = len(line) if line is not None else 0
        if gate.shares.shares:
            lines = self._picture.lines.values()
            waiting = sum(len(line) for line in lines if line.job_type == job_type)
        return None if mean is None else mean * (waiting + 1) / slots

    def expected_run_s(
        self, job_type: str, model: str | None = None, units: int = 0
    ) -> float | None:
        """Seconds such a task takes at speed 1, once tasks of its type have run."""
        known = self._picture.estimates
        if known.recent_s(job_type) is None:
            return None
        return known.run_s(job_type, model, units)

    def expected_run(
        self,
        job_type: str,
        model: str | None = None,
        units: int = 0,
        worker_id: str = "",
    ) -> Figure | None:
        """The same with how sure it is, on this worker or at speed 1."""
        found = self._picture.estimates.run(job_type, model, units)
        worker = self._picture.fleet.workers.get(worker_id)
        if found is None or worker is None or worker.speed == 1.0:
            return found
        value, low, high = (
            seconds / worker.speed for seconds in (found.value, found.low, found.high)
        )
        return Figure(value, low, high, found.count)

    def expected_load(self, model: str, worker_id: str = "") -> Figure | None:
        """Seconds a model takes to load, there or anywhere, once it was loaded."""
        return self._picture.estimates.load(model, worker_id)

    def working(
        self, job_type: str, model: str | None = None, units: int = 0
    ) -> Figure | None:
        """MB of GPU memory such a task takes beside its model, if anybody knows."""
        return self._picture.estimates.working(job_type, model, units)

    def speed(self, worker_id: str) -> tuple[float, int]:
        """A worker's speed beside the others, and the runs that is learned from."""
        worker = self._picture.fleet.workers.get(worker_id)
        speeds = self._picture.estimates.speeds
        speed = worker.speed if worker else speeds.factor(worker_id)
        return speed, speeds.count(worker_id)

    def learned(self) -> list[Learned]:
        """What was learned since this was asked last, to be kept."""
        return self._picture.estimates.changed()

    def expect(self, task_id: str, now: float) -> ExpectedStart | None:
        """When a task that only waits for its turn will start, if that is known."""
        line = self._picture.line_by_task.get(task_id)
        task = line.queue.get(task_id) if line is not None else None
        if line is None or task is None or line.is_aside or self._picture.is_paused:
            return None
        return self.forecasts.expect(task, line, now)

    def why(self, task_id: str, now: float) -> Reason | None:
        """Why this task waits; None when it does not wait here."""
        return self._explainer.why(task_id, now)

    def explain(
        self, task_id: str, now: float, most: int = MOST_WORKERS
    ) -> TaskExplanation | None:
        """Why this task waits and what would start it, or why it went where it did.

        Looks at `most` workers. None when nothing is known of it here.
        """
        return self._explainer.explain(task_id, now, most)

    def surplus(self, worker_id: str, now: float) -> tuple[str, ...]:
        """Models a worker should drop because they no longer fit its memory."""
        worker = self._picture.fleet.workers.get(worker_id)
        return self._costs.surplus(worker, now) if worker else ()

    def known_model(self, model: str) -> tuple[float | None, float | None]:
        """What is known of a model: MB it takes, seconds its load takes."""
        return self._picture.estimates.model(model)

    def workers(self) -> list[FleetWorker]:
        """Those that can take orders, to be read."""
        return list(self._picture.fleet.workers.values())

    def waiting(self) -> list[WaitingTask]:
        """Every task that waits, for whatever reason."""
        lines = self._picture.lines.values()
        queued = [task for line in lines for task in line.queue.tasks()]
        return [*queued, *self._picture.delays.tasks()]

    def buckets(self) -> list[ShareHolder]:
        """Who has a share or a limit, and how each stands; to be read."""
        return list(self._picture.gate.shares.buckets.values())

    def share_day(self) -> int:
        """The day that GPU-seconds are counted for, in days since epoch."""
        return self._picture.gate.shares.day

    def counts(self, task_id: str) -> bool:
        """Must it be told when this task is no longer with its worker?"""
        picture = self._picture
        return task_id in picture.gate.shares.out or picture.leases.counts(task_id)

    def serves(self, worker_id: str) -> bool:
        """May this worker be given orders, or will it once its node is open?"""
        return worker_id in self._picture.fleet.workers

    def kept(self) -> frozenset[str]:
        """Workers that tasks wait for by name, or that have pinned models."""
        picture = self._picture
        lines = (f.only for f in picture.lines.values() if f and f.only)
        later = (t.worker_id for t in picture.delays.tasks() if t.worker_id)
        return frozenset((*lines, *later, *picture.fleet.pins))

    def demands(self, now: float) -> tuple[Demand, ...]:
        """What waits for workers, and how long it will take those there are."""
        return demands(self._picture, now)

    def leased_mb(self, card_id: str) -> int:
        """What tasks were given of the memory of one card."""
        leases = self._picture.leases.by_task.values()
        return sum(lease.need.gpu_mb for lease in leases if card_id in lease.cards)

    def leases(self) -> dict[str, Lease]:
        """What tasks were given, by task; to be read."""
        return dict(self._picture.leases.by_task)

    def floor_mb(self, job_type: str, model: str | None) -> int:
        """What tasks of this kind were found to need of a card, if any ran short."""
        return self._picture.memory_floors.get((job_type, model), 0)

    def offers(self, node_id: str) -> NodeOffers | None:
        """What a node last told that it has for tasks with needs."""
        node = self._picture.leases.node(node_id)
        return node.offers if node is not None else None

    def fits_somewhere(self, task: WaitingTask) -> bool:
        """Is there a worker with room for it, if nothing else ran?"""
        task = raised(self._picture.memory_floors, task)
        if task.need is None:
            return True
        leases = self._picture.leases
        groups = self._picture.detached(task).groups
        return any(
            leases.could(worker.worker_id, worker.node_id, task.need)
            for group in groups
            for worker in group.workers.values()
        )

    def open_orders(self, worker_id: str) -> int:
        """Orders a worker has or is about to get."""
        worker = self._picture.fleet.workers.get(worker_id)
        return worker.open_orders if worker else 0
