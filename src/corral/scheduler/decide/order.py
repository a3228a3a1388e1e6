"""Which line a worker with room serves: the order between job types and within one.

Critical before all; then who has waited far too long, every other time; then who has
had less than its share; then most weight done per second. Within a job type priority
comes before everything but the second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import nlargest, nsmallest

from corral.scheduler.decide.cost import BATCH, CostModel, EvictionCandidate
from corral.scheduler.events import WaitingTask
from corral.scheduler.learn.estimate import Estimates
from corral.scheduler.world.decision import Cost
from corral.scheduler.world.fleet import FleetWorker
from corral.scheduler.world.late_tasks import PassedTasks
from corral.scheduler.world.line import CRITICAL, TaskLine
from corral.scheduler.world.share import Shares

_MANY = 64
_FEW = 32
_OLDEST = 4
Rank = tuple[bool, int, int, int]
"""Is it critical, how far its owner is ahead (negative), score, who came first."""
Found = tuple[Rank, TaskLine, Cost]


class LineOrder:
    def __init__(
        self,
        costs: CostModel,
        estimates: Estimates,
        shares: Shares,
        passed_tasks: PassedTasks,
        line_by_task: Mapping[str, TaskLine],
    ) -> None:
        self._costs = costs
        self._estimates = estimates
        self._shares = shares
        self._passed_tasks = passed_tasks
        self._line_by_task = line_by_task

    def pick(
        self,
        worker: FleetWorker,
        now: float,
        may: Callable[[TaskLine], bool] | None = None,
    ) -> tuple[TaskLine, Cost] | None:
        """The line this worker should serve now, if any is better served by it."""
        best: dict[str, Found] = {}
        late: Found | None = None
        for found in self._able(worker, now, may):
            rank, line, _ = found
            kind = _kind(line)
            known = best.get(kind)
            if known is None or _in_type(found) > _in_type(known):
                best[kind] = found
            if self._is_late(found, now) and (late is None or rank[3] > late[0][3]):
                late = found
        if not best:
            return None
        first = max(best.values(), key=lambda f: f[0])
        if late is not None and not first[0][0]:
            overdue = self._overdue(worker, late, best, now)
            if overdue is not None:
                return late[1], overdue
        _, line, cost = first
        hasty = line.hasty(now, cost.setup_s + cost.run_s)
        if hasty is None or line.gang_size:
            return line, cost
        if line.only is not None and hasty.need is not None:
            # What it needs may be other than what the next one does.
            own = self._costs.cost(worker, line, now, task=hasty)
            return line, cost if own is None else replace(own, first=hasty)
        return line, replace(cost, first=hasty)

    def _able(
        self, worker: FleetWorker, now: float, may: Callable[[TaskLine], bool] | None
    ) -> Iterator[Found]:
        victims: list[EvictionCandidate] | None = None
        some = self._worth_a_look(worker, now)
        for line in self._costs.not_left(worker, some, now):
            if line.only is not None and line.only != worker.worker_id:
                continue
            if may is not None and not may(line):
                continue
            if victims is None and line.model not in worker.models:
                victims = self._costs.victims(worker, now)
            cost = self._costs.offer(worker, line, now, victims)
            if cost is not None:
                yield self._rank(line, cost), line, cost

    def _rank(self, line: TaskLine, cost: Cost) -> Rank:
        """Scores within a percent are equal: then who came first."""
        level = self._level(line, cost) if line.buckets else 0
        score = int(64 * math.log2(cost.score))
        return line.priority >= CRITICAL, level, score, -line.since

    def _level(self, line: TaskLine, cost: Cost) -> int:
        """How many turns its owner is ahead of others; less than one does not count.

        A turn is what it is worth to change for: a task, or a model with a batch.
        """
        turn_s = cost.run_s
        if line.model is not None:
            turn_s = self._estimates.load_s(line.model) + BATCH * cost.run_s
        return -int(self._shares.debt_s(line) / max(turn_s, 1e-3))

    def _is_late(self, found: Found, now: float) -> bool:
        (_, level, _, _), line, _ = found
        # Who has more than its share waits for that reason, however long.
        return level == 0 and self._costs.tier(line, now) == 1

    def _overdue(
        self, worker: FleetWorker, late: Found, best: dict[str, Found], now: float
    ) -> Cost | None:
        """What the oldest of a line costs, if it may go now."""
        _, line, cost = late
        oldest = line.queue.oldest()
        if worker.was_late or oldest is None or line.gang_size:
            return None
        found = best.get(oldest.job_type)
        passes = found is not None and found[1].priority > _priority(line, oldest)
        if passes and self._owes(worker, oldest.job_type):
            return None
        if line.only is not None:
            # Such a line has tasks of several models.
            own = self._costs.cost(worker, line, now, task=oldest)
            if own is None:
                return None
            cost = own
        return replace(cost, first=oldest, is_late=True)

    def _owes(self, worker: FleetWorker, job_type: str) -> bool:
        """Were some passed before, which this worker could run now?"""
        waiting = worker.group.waiting
        for task_id in self._passed_tasks.owed(job_type):
            line = self._line_by_task.get(task_id)
            if line is None or waiting.get(line.key) is not line:
                continue
            if line.only in (None, worker.worker_id):
                return True
        return False

    def _worth_a_look(self, worker: FleetWorker, now: float) -> Iterable[TaskLine]:
        """All that wait; of very many those that could be the ones to choose."""
        waiting = worker.group.waiting
        if len(waiting) <= _MANY:
            return waiting.values()
        some: dict[str, TaskLine] = {}
        rest: list[tuple[float, int, str]] = []
        best: dict[str, TaskLine] = {}
        for key, line in waiting.items():
            if line.model in worker.models:
                some[key] = line
                continue
            rest.append((line.weight(BATCH, now), -line.since, key))
            found = best.get(line.job_type)
            if found is None or line.priority > found.priority:
                best[line.job_type] = line
        some |= {line.key: line for line in best.values()}
        chosen = (*nlargest(_FEW, rest), *nsmallest(_OLDEST, rest, key=_came))
        return {**some, **{key: waiting[key] for _, _, key in chosen}}.values()

    def better(self, worker: FleetWorker, late: WaitingTask) -> Iterator[WaitingTask]:
        """Tasks of its type that stand before one that is overdue."""
        for line in worker.group.waiting.values():
            if line.only not in (None, worker.worker_id):
                continue
            for task in line.queue.tasks():
                is_of_type = task.job_type == late.job_type
                if is_of_type and _priority(line, task) > _priority(line, late):
                    yield task


def _kind(line: TaskLine) -> str:
    """The job type of its next task: a line of one worker has several."""
    head = line.queue.head() if line.only else None
    return head.job_type if head else line.job_type


def _came(row: tuple[float, int, str]) -> int:
    return -row[1]


def _priority(line: TaskLine, task: WaitingTask) -> int:
    return task.priority if line.counts_priority else 0


def _in_type(found: Found) -> tuple[int, Rank]:
    """Within a job type priority comes before everything."""
    return found[1].priority, found[0]
