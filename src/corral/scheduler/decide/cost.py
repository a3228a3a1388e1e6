"""Smith's rule with set-up times: most weight done per second, loads included."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from corral.scheduler.decide.reservations import CapacityHolds
from corral.scheduler.events import WaitingTask
from corral.scheduler.learn.estimate import Estimates
from corral.scheduler.place.leases import Leases
from corral.scheduler.world.decision import Cost
from corral.scheduler.world.fleet import Fleet, FleetWorker
from corral.scheduler.world.late_tasks import OVERDUE_S, overdue_s
from corral.scheduler.world.line import CRITICAL, TaskLine

BATCH = 4
_MOST_HOLDERS = 32
REUSE = 0.2
"""How likely one arrival within the last hour makes a dropped model wanted again."""
_COLD = 4
_WARM = 16


@dataclass(frozen=True, slots=True)
class EvictionCandidate:
    """A model that could be dropped, and what its return would cost."""

    rank: tuple[bool, float, float, str]
    model: str
    size_mb: float
    lost_s: float


class CostModel:
    def __init__(
        self,
        fleet: Fleet,
        estimates: Estimates,
        most_models: int,
        is_lru: bool = False,
        leases: Leases | None = None,
        needy: dict[str, TaskLine] | None = None,
    ) -> None:
        self._fleet = fleet
        self.leases = leases or Leases()
        self.holds = CapacityHolds(
            self.leases, fleet, {} if needy is None else needy, self.tier
        )
        self._estimates = estimates
        self._most_models = most_models
        self._is_lru = is_lru
        self._enough_until: float | None = None

    # what it takes --------------------------------------------------------------
    def tier(self, line: TaskLine, now: float) -> int:
        """Critical before all, then who has waited far too long."""
        if line.priority >= CRITICAL:
            return 2
        waited_s = line.waited_s(now)
        if waited_s < OVERDUE_S:
            return 0
        run_s = self._estimates.run_s(line.job_type, line.model)
        return int(waited_s > overdue_s(run_s))

    def offer(
        self,
        worker: FleetWorker,
        line: TaskLine,
        now: float,
        victims: list[EvictionCandidate] | None = None,
    ) -> Cost | None:
        """As `cost`; that it is None is remembered as long as it must stay so."""
        if self.is_left(worker, line, now):
            return None
        if line.gang_size and not self.holds.places(line, now):
            return None
        self._enough_until = None
        found = self.cost(worker, line, now, victims)
        if found is None and self._enough_until is not None:
            epoch = self._fleet.epochs[line.model or ""]
            line.left = (worker.speed, now, self._enough_until, epoch)
        return found

    def cost(
        self,
        worker: FleetWorker,
        line: TaskLine,
        now: float,
        victims: list[EvictionCandidate] | None = None,
        task: WaitingTask | None = None,
    ) -> Cost | None:
        """None when workers that have the model will be through with it before.

        It is what the next task takes, or `task`.
        """
        head = task or line.queue.head()
        assert head is not None
        # A line of one worker has tasks of several types and models.
        known, model = self._estimates, head.model
        normal_s = known.run_s(head.job_type, model, head.units)
        run_s = normal_s / worker.speed
        count: float = len(line.queue)
        setup_s = 0.0
        unload: tuple[str, ...] = ()
        task_mb = 0.0
        if head.need is not None:
            if not self.holds.fits(worker, line, head, now):
                return None
            task_mb = self.task_mb(worker, head)
        if model is not None and model not in worker.models:
            setup_s = known.load_s(model, worker.worker_id)
            if line.only is None:
                within_s = setup_s + run_s
                count -= self._absorbed(line, within_s, normal_s, now)
            if count <= 0:
                return None
            if victims is None:
                victims = self.victims(worker, now)
            found = self.room_for(worker, model, victims, task_mb)
            if found is None:
                return None
            unload, lost_s = found
            setup_s += lost_s
        elif task_mb:
            some = self.victims(worker, now) if victims is None else victims
            some = [victim for victim in some if victim.model != model]
            found = self.room_for(worker, None, some, task_mb)
            if found is None:
                return None
            unload, setup_s = found
        batch = min(BATCH, max(1, int(count)))
        weight = max(line.weight(batch, now, setup_s + run_s), 1e-9)
        score = weight / (setup_s + batch * run_s + 1e-9)
        return Cost(setup_s, run_s, score, unload, batch)

    def is_left(self, worker: FleetWorker, line: TaskLine, now: float) -> bool:
        """Was it left to those who have its model, and nothing changed since?

        What a fast worker leaves to them a slower one does all the more.
        """
        left = line.left
        return (
            left is not None
            and worker.speed <= left[0]
            and left[1] <= now < left[2]
            and line.model not in worker.models
            and left[3] == self._fleet.epochs[line.model or ""]
        )

    def not_left(
        self, worker: FleetWorker, lines: Iterable[TaskLine], now: float
    ) -> list[TaskLine]:
        """Those of which `is_left` is false; one call for all of them is quicker."""
        epochs, speed, models = self._fleet.epochs, worker.speed, worker.models
        return [
            line
            for line in lines
            if (left := line.left) is None
            or speed > left[0]
            or not left[1] <= now < left[2]
            or line.model in models
            or left[3] != epochs[line.model or ""]
        ]

    def is_left_by_all(self, line: TaskLine, ahead: int, now: float) -> bool:
        """As `is_left`, for whoever has room."""
        left, model = line.left, line.model or ""
        if left is None or not left[1] <= now < left[2]:
            return False
        if left[3] != self._fleet.epochs[model] or self._fleet.ready.get(model):
            return False
        speed = left[0]
        return all(g.speed <= speed or not g.has_free(ahead) for g in line.groups)

    def _absorbed(
        self,
        line: TaskLine,
        within_s: float,
        normal_s: float,
        now: float,
    ) -> float:
        """Tasks that those who have the model will have done by then.

        All of them is enough; then it is noted until when that must stay so.
        """
        holders = self._fleet.holders.get(line.model or "")
        if not holders:
            return 0.0
        done, fading, until = 0.0, 0.0, math.inf
        enough, groups = len(line.queue) * normal_s, line.groups
        for holder in islice(holders.values(), _MOST_HOLDERS):
            if holder.is_held or holder.group not in groups:
                continue
            left_s = within_s - holder.residual_s(now)
            if left_s <= 0.0:
                continue
            rate = holder.speed * holder.slots
            done += left_s * rate
            if holder.open_orders and holder.free_at > now:
                until = min(until, holder.free_at)
            elif holder.open_orders:
                # The later it is, the longer it may take: half of the delay.
                fading += 0.5 * rate
            if done >= enough:
                if fading:
                    until = min(until, now + (done - enough) / fading)
                self._enough_until = until
                break
        return done / max(normal_s, 1e-9)

    # room -------------------------------------------------------------------------
    def task_mb(self, worker: FleetWorker, task: WaitingTask) -> float:
        """What it and those that run there take of the cards this worker has."""
        need = task.need
        if need is None or not need.gpu_mb or not worker.gpus:
            return 0.0
        return need.gpu_mb * need.gpus + self.leases.leased_mb(worker.worker_id)

    def room_for(
        self,
        worker: FleetWorker,
        model: str | None,
        victims: Sequence[EvictionCandidate],
        task_mb: float = 0.0,
    ) -> tuple[tuple[str, ...], float] | None:
        """What to drop for this model, and the seconds that is expected to cost.

        None when it does not fit even then. For one that nobody has loaded yet, and
        whose size is therefore unknown, all goes that can. `task_mb` is what tasks
        take beside models.
        """
        short_mb, is_new = -1.0, False
        if worker.memory_mb is not None:
            short_mb = self._used_mb(worker) - worker.memory_mb + task_mb
            if model is not None:
                short_mb += self._estimates.size_mb(model)
                is_new = not self._estimates.has_seen(model)
        over = len(worker.models) + (model is not None) - self._most_models
        dropped: list[str] = []
        lost_s = 0.0
        for victim in victims:
            if short_mb <= 1e-6 and over <= 0 and not is_new:
                break
            dropped.append(victim.model)
            short_mb -= victim.size_mb
            over -= 1
            lost_s += victim.lost_s
        if short_mb > 1e-6 or over > 0:
            return None
        return tuple(dropped), lost_s

    def _used_mb(self, worker: FleetWorker) -> float:
        return sum(map(self._estimates.size_mb, worker.models))

    def surplus(self, worker: FleetWorker, now: float) -> tuple[str, ...]:
        """Models to drop because others have taken memory since they were loaded."""
        if worker.memory_mb is None:
            return ()
        short_mb = self._used_mb(worker) - worker.memory_mb
        found = []
        for victim in self.victims(worker, now) if short_mb > 1e-6 else ():
            if victim.size_mb and short_mb > 1e-6:
                found.append(victim.model)
                short_mb -= victim.size_mb
        return tuple(found)

    def victims(self, worker: FleetWorker, now: float) -> list[EvictionCandidate]:
        """Models neither in use nor pinned, the least worth keeping first."""
        known, pins = self._estimates, self._fleet.pins.get(worker.worker_id, ())
        waited_for = {line.model for line in worker.group.waiting.values()}
        found = []
        for model, held in worker.models.items():
            if held.in_use or model in pins:
                continue
            wanted = known.demand(model, now) / self._fleet.copies(model)
            load_s, size_mb = known.load_s(model), known.size_mb(model)
            value = held.used_at
            if not self._is_lru:
                value = wanted * load_s / max(size_mb, 1.0)
            lost_s = load_s * min(1.0, REUSE * wanted)
            rank = (model in waited_for, value, held.used_at, model)
            found.append(EvictionCandidate(rank, model, size_mb, lost_s))
        found.sort(key=lambda victim: victim.rank)
        return found

    # a line looks for workers -----------------------------------------------------
    def candidates(self, line: TaskLine, ahead: int) -> Iterator[FleetWorker]:
        """Workers with room: those that have the model, then the fastest."""
        if line.only is not None:
            only = self._fleet.workers.get(line.only)
            if only and not only.is_held and only.open_orders < only.slots * ahead:
                yield only
            return
        model = line.model
        if model is not None:
            ready = self._fleet.ready.get(model, {})
            warm = [w for w in islice(ready.values(), _WARM) if w.group in line.groups]
            yield from sorted(warm, key=quick)
        cold = [
            w
            for group in line.groups
            for w in group.free(ahead)
            if model is None or model not in w.models
        ]
        yield from sorted(cold, key=quick)[:_COLD]


def quick(worker: FleetWorker) -> tuple[float, float, str]:
    """The order in which workers are asked: least loaded, fastest, by name."""
    return worker.open_orders / worker.slots, -worker.speed, worker.worker_id
