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
from corral.errors import SchedulingError
from corral.scheduler.decide.cost import CostModel, quick
from corral.scheduler.decide.order import LineOrder
from corral.scheduler.decide.preempt import Preemption
from corral.scheduler.decide.strategies import STRATEGIES, bind
from corral.scheduler.events import (
    SchedulerEvent,
    TasksQueued,
    WaitingTask,
    WorkerReady,
)
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
from corral.scheduler.world.fleet import FleetWorker
from corral.scheduler.world.late_tasks import SkippedLines
from corral.scheduler.world.line import TaskLine
from corral.scheduler.world.picture import Picture

_LOOK_AGAIN_S = 1.0
_LOOK_LATER_S = 10.0


class Scheduler(Queries):
    """Deterministic for the same events; the caller owns clock and I/O."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy or Policy()
        self._picture = Picture(follows_habits=self._policy.prefetch != "off")
        self._costs = CostModel(
            self._picture.fleet,
            self._picture.estimates,
            self._policy.most_models,
            self._policy.is_lru,
            self._picture.leases,
            self._picture.needy,
        )
        self._holds = self._costs.holds
        self._line_order = LineOrder(
            self._costs,
            self._picture.estimates,
            self._picture.gate.shares,
            self._picture.passed_tasks,
            self._picture.line_by_task,
        )
        made = STRATEGIES.get(self._policy.strategy)
        self._strategy = made() if made else None
        self._preemption: Preemption | None = None
        if self._policy.preempts:
            self._preemption = Preemption(self._picture, self._picture.estimates)
        self.forecasts = Forecasts(
            self._picture.fleet, self._picture.estimates, self._costs
        )
        self._decisions = Decisions()
        self._explainer = Explainer(
            self._picture, self._costs, self.forecasts, self._decisions
        )
        self._prefetch_planner = PrefetchPlanner(
            self._picture, self._costs, self._policy.prefetch
        )
        # Lines left to workers that have their model, and when to look again.
        self._skipped = SkippedLines()

    def apply(self, event: SchedulerEvent) -> None:
        """Take note of what happened."""
        self._picture.apply(event)

    # models ------------------------------------------------------------------
    def prefetch(self, now: float) -> Prefetch:
        """Models to load before they are asked for; not for while work is planned."""
        return self._prefetch_planner.plan(now)

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
        for key in self._skipped.due(now):
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
        for node_id in self._holds.keep(now):
            self._picture.look_at(node_id)
        self._serve_freed(now, orders)

    def _serve_freed(self, now: float, orders: list[PlannedOrder]) -> None:
        """An order each, the least loaded first, until they want no more."""
        freed, workers = self._picture.take_freed(), self._picture.fleet.workers
        found = (workers.get(worker_id) for worker_id in freed)
        heap = [(quick(worker), worker) for worker in found if worker is not None]
        heapify(heap)
        while heap:
            _, worker = heappop(heap)
            if self._serve(worker, now, orders):
                heappush(heap, (quick(worker), worker))

    def _serve_grown(self, now: float, orders: list[PlannedOrder]) -> None:
        for key in self._picture.take_grown():
            line = self._picture.lines.get(key)
            while line and not line.is_aside:
                ahead = self._ahead(line)
                before, passed = len(orders), []
                for worker in self._candidates(line, ahead, now):
                    # The other lines were no choice for it before, either.
                    if self._costs.offer(worker, line, now) is None:
                        passed.append(worker.worker_id)
                        continue
                    self._serve(worker, now, orders, passed)
                    if not line or line.is_aside:
                        break
                if len(orders) == before:
                    # Who waits for one worker, or for room, is not helped by time.
                    is_open = line.only is None and line.key not in (
                        self._picture.needy
                    )
                    if is_open and any(g.has_free(ahead) for g in line.groups):
                        self._skipped.set(key, now + _LOOK_AGAIN_S)
                    break

    def _candidates(
        self, line: TaskLine, ahead: int, now: float
    ) -> Iterable[FleetWorker]:
        if self._costs.is_left_by_all(line, ahead, now):
            return ()
        if line.gang_size:
            return self._holds.places(line, now)[:1]
        if line.need is not None and line.model is None:
            best = self._holds.best(line, now)
            return () if best is None else (best,)
        return self._costs.candidates(line, ahead)

    def _ahead(self, line: TaskLine) -> int:
        return AHEAD if self._is_short(line) else 1

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
        if is_full and now > worker.free_at + self._policy.ahead_late_s:
            return False
        found = self._line_order.pick(worker, now, self._is_short if is_full else None)
        if found is None:
            self._leave(worker, now)
            return False
        line, cost = found
        if line.gang_size:
            orders += self._give_all(line, now)
            return True
        if line.need is not None and line.model is None:
            # Another worker may be the better place for what it needs.
            best = self._holds.best(line, now)
            if best is not None and best is not worker:
                worker, passed_over = best, ()
                cost = self._costs.cost(best, line, now, task=cost.first) or cost
        orders.append(self._give(worker, line, cost, now, tuple(passed_over)))
        return True

    def _give_all(self, line: TaskLine, now: float) -> Iterator[PlannedOrder]:
        """Give every member of a gang its place at once."""
        workers = self._holds.places(line, now)
        for worker, task in zip(workers, self._holds.members(line), strict=True):
            cost = self._costs.cost(worker, line, now, task=task)
            if cost is None:
                raise AssertionError(f"{task.task_id} was found to fit")
            order = self._give(worker, line, replace(cost, first=task), now)
            yield replace(order, lead=workers[0].worker_id)

    def _give(
        self,
        worker: FleetWorker,
        line: TaskLine,
        cost: Cost,
        now: float,
        passed_over: tuple[str, ...] = (),
    ) -> PlannedOrder:
        tasks = self._take(worker, line, cost, now)
        self._picture.close_if_empty(line)
        load = self._load(worker, tasks[0].model, cost, now)
        load_s = 0.0
        if load:
            load_s = self._picture.estimates.load_s(load, worker.worker_id)
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
            cards = self._picture.leases.take(tasks[0].task_id, *where, need)
        return PlannedOrder(worker.worker_id, tasks, load, cost.unload, cards)

    def _leave(self, worker: FleetWorker, now: float) -> None:
        """It has room, and what waits is left to others; they may not come to it."""
        if worker.has_room:
            self._skipped.add(worker.group.shared(), now + _LOOK_LATER_S)

    def _take(
        self, worker: FleetWorker, line: TaskLine, cost: Cost, now: float
    ) -> tuple[WaitingTask, ...]:
        picture = self._picture
        if cost.is_late and cost.first is not None:
            better = self._line_order.better(worker, cost.first)
            picture.passed_tasks.passed(cost.first.job_type, better)
        worker.was_late = cost.is_late
        gpus = worker.gpus if line.need is None else line.need.milli / WHOLE
        most = self._most(line, cost, gpus)
        room = self._policy.order_max_bytes
        if cost.first is not None:
            tasks = line.pull(cost.first.task_id)
            tasks += _more(line, most - 1, room - cost.first.size)
        else:
            tasks = line.take(most, room)
        for task in tasks:
            picture.go(task)
        if line.buckets:
            picture.gate.begin(tasks, line.buckets, cost.run_s, gpus)
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
        times = [] if self._skipped.first is None else [self._skipped.first]
        if (next_day := self._picture.gate.shares.next_day()) is not None:
            times.append(next_day)
        if self._preemption and self._preemption.look_at is not None:
            times.append(self._preemption.look_at)
        if (next_at := self._picture.delays.next_at()) is not None:
            times.append(next_at)
        return min(times, default=None)

    def _is_short(self, line: TaskLine) -> bool:
        if line.key in self._picture.needy:
            return False
        mean = self._picture.estimates.recent_s(line.job_type)
        return mean is not None and mean < self._policy.ahead_below_s

    def _most(self, line: TaskLine, cost: Cost, gpus: float) -> int:
        """How many tasks of a line may go in one order."""
        is_batched = line.job_type in self._picture.batches
        is_alone = line.only or line.need is not None or line.gang_size
        if is_alone or (cost.first is not None and not is_batched):
            return 1
        most = self._order_size(line)
        for bucket in line.buckets:
            most = int(min(most, bucket.room(cost.run_s * gpus)))
        return most

    def _order_size(self, line: TaskLine) -> int:
        most = self._picture.batches.get(line.job_type)
        if most is None:
            mean = self._picture.estimates.recent_s(line.job_type)
            if mean is None:
                return 1
            most = int(self._policy.order_budget_s / max(mean, 1e-6))
            most = min(most, self._policy.order_max_tasks)
        share = -(-len(line) // max(1, self._slots(line)))
        return max(1, min(most, share))

    def _slots(self, line: TaskLine) -> int:
        return sum(len(group.workers) * group.slots for group in line.groups)


def _more(line: TaskLine, count: int, room: int) -> tuple[WaitingTask, ...]:
    """The next of a line, to go along with one that goes out of its turn."""
    head = line.queue.head()
    if count < 1 or head is None or head.size > room:
        return ()
    return line.take(count, room)


# One choice for whoever asks for one, by the scheduler itself.


def schedule_task(
    task: WaitingTask, workers: Iterable[WorkerReady]
) -> WorkerReady | None:
    """Schedule one task to the best of some workers.

    Args:
        task: The task to schedule.
        workers: The workers to choose from.

    Returns:
        The chosen worker, or None when those that serve it are all busy.

    Raises:
        SchedulingError: no worker serves the task's type at all.
    """
    known = {worker.worker_id: worker for worker in workers}
    if not any(task.job_type in worker.job_types for worker in known.values()):
        raise SchedulingError(
            f"no worker serves '{task.job_type}'", job_type=task.job_type
        )
    scheduler = Scheduler()
    for worker in known.values():
        scheduler.apply(worker)
    scheduler.apply(TasksQueued((task,)))
    orders = scheduler.plan(task.arrived).orders
    return known[orders[0].worker_id] if orders else None
