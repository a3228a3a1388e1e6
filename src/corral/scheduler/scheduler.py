"""The scheduler: `apply(event)` keeps its picture of the cluster, `plan(now)` decides.

Earliest completion: the best waiting task of all job types goes to the worker with the
fewest open orders. Tasks stay here until a worker can start them; only types so short
that a round trip would show get a second order ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

from corral.core.tasks.needs import WHOLE
from corral.scheduler.decide.cost import CostModel, quick
from corral.scheduler.decide.order import LineOrder
from corral.scheduler.decide.preempt import Preemption
from corral.scheduler.decide.strategies import STRATEGIES, bind
from corral.scheduler.events import SchedulerEvent, WaitingTask
from corral.scheduler.explain.decisions import Decisions
from corral.scheduler.explain.explain import Explainer
from corral.scheduler.explain.forecast import Forecasts
from corral.scheduler.models.prefetch import Prefetch, PrefetchPlanner
from corral.scheduler.models.rebalance import Move, RebalancePlanner, Strategy
from corral.scheduler.plan import Plan, PlannedOrder, Stop
from corral.scheduler.policy import AHEAD
from corral.scheduler.policy import Policy as Policy
from corral.scheduler.queries import Queries
from corral.scheduler.world.decision import Cost
from corral.scheduler.world.fairness import SkippedLines
from corral.scheduler.world.fleet import FleetWorker
from corral.scheduler.world.line import TaskLine
from corral.scheduler.world.picture import Picture

_LOOK_AGAIN_S = 1.0
_LOOK_LATER_S = 10.0


class Scheduler(Queries):
    """Deterministic for the same events; the caller owns clock and I/O."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy or Policy()
        self._picture = Picture()
        self._smith = CostModel(
            self._picture.fleet,
            self._picture.known,
            self._policy.most_models,
            self._policy.is_lru,
            self._picture.stock,
            self._picture.needy,
        )
        self._grants = self._smith.grants
        self._ordering = LineOrder(
            self._smith,
            self._picture.known,
            self._picture.gate.shares,
            self._picture.turns,
            self._picture.where,
        )
        made = STRATEGIES.get(self._policy.strategy)
        self._strategy = made() if made else None
        self._preemption: Preemption | None = None
        if self._policy.preempts:
            self._preemption = Preemption(self._picture, self._picture.known)
        self.forecasts = Forecasts(
            self._picture.fleet, self._picture.known, self._smith
        )
        self._decisions = Decisions()
        self._explaining = Explainer(
            self._picture, self._smith, self.forecasts, self._decisions
        )
        self._picture.follows_habits = self._policy.prefetch != "off"
        self._prefetching = PrefetchPlanner(
            self._picture, self._smith, self._policy.prefetch
        )
        # Families left to workers that have their model, and when to look again.
        self._again = SkippedLines()

    def apply(self, event: SchedulerEvent) -> None:
        """Take note of what happened."""
        self._picture.apply(event)

    # models ------------------------------------------------------------------
    def prefetch(self, now: float) -> Prefetch:
        """Models to load before they are asked for; not for while work is planned."""
        return self._prefetching.plan(now)

    def rebalance(
        self, now: float, strategy: Strategy, *, force: bool = False
    ) -> tuple[Move, ...]:
        """Models that should be elsewhere; nothing changes until that is done."""
        rebalancing = RebalancePlanner(self._picture, self._policy.most_models, now)
        return rebalancing.moves(strategy, force=force)

    # decisions ---------------------------------------------------------------
    def plan(self, now: float, *, can_send: bool = True) -> Plan:
        """What to do at `now`; planned tasks are no longer waiting here.

        While orders cannot be sent, only time is followed.
        """
        expired = self._expire(now)
        self._picture.delays.release(now)
        self._picture.gate.roll(now)
        for key in self._again.due(now):
            self._picture.grown[key] = None
        orders: list[PlannedOrder] = []
        if can_send and not self._picture.is_paused:
            if self._strategy is not None:
                bind(self._strategy, self._picture, now)
            self._serve_freed(now, orders)
            self._serve_grown(now, orders)
            if self._picture.needy:
                self._keep(now, orders)
        may_stop = can_send and not self._picture.is_paused
        stops: tuple[Stop, ...] = ()
        if self._preemption is not None and may_stop:
            stops = self._preemption.choose(now)
        return Plan(tuple(orders), expired, self._next_wake(), stops)

    def _keep(self, now: float, orders: list[PlannedOrder]) -> None:
        """Keep nodes for those that fit nowhere yet; others get what is given up."""
        for node_id in self._grants.keep(now):
            self._picture.look_at(node_id)
        self._serve_freed(now, orders)

    def _serve_freed(self, now: float, orders: list[PlannedOrder]) -> None:
        """An order each, the least loaded first, until they want no more."""
        freed, self._picture.freed = self._picture.freed, {}
        found = (self._picture.fleet.workers.get(worker_id) for worker_id in freed)
        heap = [(quick(worker), worker) for worker in found if worker is not None]
        heapify(heap)
        while heap:
            _, worker = heappop(heap)
            if self._serve(worker, now, orders):
                heappush(heap, (quick(worker), worker))

    def _serve_grown(self, now: float, orders: list[PlannedOrder]) -> None:
        grown, self._picture.grown = self._picture.grown, {}
        for key in grown:
            family = self._picture.families.get(key)
            while family and not family.is_aside:
                ahead = self._ahead(family)
                before, passed = len(orders), []
                for worker in self._candidates(family, ahead, now):
                    # The other families were no choice for it before, either.
                    if self._smith.offer(worker, family, now) is None:
                        passed.append(worker.worker_id)
                        continue
                    self._serve(worker, now, orders, passed)
                    if not family or family.is_aside:
                        break
                if len(orders) == before:
                    # Who waits for one worker, or for room, is not helped by time.
                    is_open = family.only is None and family.key not in (
                        self._picture.needy
                    )
                    if is_open and any(g.has_free(ahead) for g in family.groups):
                        self._again.set(key, now + _LOOK_AGAIN_S)
                    break

    def _candidates(
        self, family: TaskLine, ahead: int, now: float
    ) -> Iterable[FleetWorker]:
        if self._smith.is_left_by_all(family, ahead, now):
            return ()
        if family.gang_size:
            return self._grants.places(family, now)[:1]
        if family.need is not None and family.model is None:
            best = self._grants.best(family, now)
            return () if best is None else (best,)
        return self._smith.candidates(family, ahead)

    def _ahead(self, family: TaskLine) -> int:
        return AHEAD if self._is_short(family) else 1

    def _serve(
        self,
        worker: FleetWorker,
        now: float,
        orders: list[PlannedOrder],
        passed_over: Sequence[str] = (),
    ) -> bool:
        """Give a worker one more order, if it has room and there is one for it."""
        if worker.is_held or worker.open_orders >= worker.slots * AHEAD:
            return False
        is_full = worker.open_orders >= worker.slots
        found = self._ordering.pick(worker, now, self._is_short if is_full else None)
        if found is None:
            self._leave(worker, now)
            return False
        family, cost = found
        if family.gang_size:
            orders += self._give_all(family, now)
            return True
        if family.need is not None and family.model is None:
            # Another worker may be the better place for what it needs.
            best = self._grants.best(family, now)
            if best is not None and best is not worker:
                worker, passed_over = best, ()
                cost = self._smith.cost(best, family, now, task=cost.first) or cost
        orders.append(self._give(worker, family, cost, now, tuple(passed_over)))
        return True

    def _give_all(self, family: TaskLine, now: float) -> Iterator[PlannedOrder]:
        """Give every member of a gang its place at once."""
        workers = self._grants.places(family, now)
        for worker, task in zip(workers, self._grants.members(family), strict=True):
            cost = self._smith.cost(worker, family, now, task=task)
            if cost is None:
                raise AssertionError(f"{task.task_id} was found to fit")
            order = self._give(worker, family, replace(cost, first=task), now)
            yield replace(order, lead=workers[0].worker_id)

    def _give(
        self,
        worker: FleetWorker,
        family: TaskLine,
        cost: Cost,
        now: float,
        passed_over: tuple[str, ...] = (),
    ) -> PlannedOrder:
        tasks = self._take(worker, family, cost, now)
        self._picture.close_if_empty(family)
        load = self._load(worker, tasks[0].model, cost, now)
        load_s = 0.0
        if load:
            load_s = self._picture.known.load_s(load, worker.worker_id)
        self._decisions.note(worker, tasks, cost, load, load_s, now, passed_over)
        if self.forecasts.has_any():
            for task in tasks:
                self.forecasts.started(task.task_id, now)
        begins = max(now, worker.free_at) if worker.open_orders else now
        took_s = len(tasks) * cost.run_s + load_s
        worker.free_at = begins + took_s / worker.slots
        self._picture.fleet.set_open(worker, worker.open_orders + 1)
        cards: tuple[str, ...] = ()
        if (need := tasks[0].need) is not None:
            where = (worker.worker_id, worker.node_id)
            cards = self._picture.stock.take(tasks[0].task_id, *where, need)
        return PlannedOrder(worker.worker_id, tasks, load, cost.unload, cards)

    def _leave(self, worker: FleetWorker, now: float) -> None:
        """It has room, and what waits is left to others; they may not come to it."""
        if worker.has_room:
            self._again.add(worker.group.shared(), now + _LOOK_LATER_S)

    def _take(
        self, worker: FleetWorker, family: TaskLine, cost: Cost, now: float
    ) -> tuple[WaitingTask, ...]:
        picture = self._picture
        if cost.is_late and cost.first is not None:
            better = self._ordering.better(worker, cost.first)
            picture.turns.passed(cost.first.job_type, better)
        worker.was_late = cost.is_late
        gpus = worker.gpus if family.need is None else family.need.milli / WHOLE
        most = self._most(family, cost, gpus)
        room = self._policy.order_max_bytes
        if cost.first is not None:
            tasks = family.pull(cost.first.task_id)
            tasks += _more(family, most - 1, room - cost.first.size)
        else:
            tasks = family.take(most, room)
        for task in tasks:
            picture.go(task)
        if family.buckets:
            picture.gate.begin(tasks, family.buckets, cost.run_s, gpus)
        return tasks

    def _load(
        self, worker: FleetWorker, model: str | None, cost: Cost, now: float
    ) -> str | None:
        if model is None:
            return None
        load = None
        if model not in worker.models:
            self._picture.fleet.swap(worker, model, cost.unload, now)
            load = model
        held = worker.models[model]
        held.used_at = now
        held.in_use += 1
        return load

    def _expire(self, now: float) -> tuple[WaitingTask, ...]:
        gone: list[WaitingTask] = []
        for task_id, attempt in self._picture.delays.past(now):
            task = self._picture.find(task_id)
            if task is not None and task.attempt == attempt:
                self._picture.forget(task_id)
                self._decisions.expire(task, now)
                gone.append(task)
        return tuple(gone)

    def _next_wake(self) -> float | None:
        times = [] if self._again.first is None else [self._again.first]
        if (next_day := self._picture.gate.shares.next_day()) is not None:
            times.append(next_day)
        if self._preemption and self._preemption.look_at is not None:
            times.append(self._preemption.look_at)
        if (next_at := self._picture.delays.next_at()) is not None:
            times.append(next_at)
        return min(times, default=None)

    def _is_short(self, family: TaskLine) -> bool:
        if family.key in self._picture.needy:
            return False
        mean = self._picture.known.recent_s(family.job_type)
        return mean is not None and mean < self._policy.ahead_below_s

    def _most(self, family: TaskLine, cost: Cost, gpus: float) -> int:
        """How many tasks of a line may go in one order."""
        is_batched = family.job_type in self._picture.batches
        is_alone = family.only or family.need is not None or family.gang_size
        if is_alone or (cost.first is not None and not is_batched):
            return 1
        most = self._order_size(family)
        for bucket in family.buckets:
            most = int(min(most, bucket.room(cost.run_s * gpus)))
        return most

    def _order_size(self, family: TaskLine) -> int:
        most = self._picture.batches.get(family.job_type)
        if most is None:
            mean = self._picture.known.recent_s(family.job_type)
            if mean is None:
                return 1
            most = int(self._policy.order_budget_s / max(mean, 1e-6))
            most = min(most, self._policy.order_max_tasks)
        share = -(-len(family) // max(1, self._slots(family)))
        return max(1, min(most, share))

    def _slots(self, family: TaskLine) -> int:
        return sum(len(group.workers) * group.slots for group in family.groups)


def _more(family: TaskLine, count: int, room: int) -> tuple[WaitingTask, ...]:
    """The next of a line, to go along with one that goes out of its turn."""
    head = family.queue.head()
    if count < 1 or head is None or head.size > room:
        return ()
    return family.take(count, room)
