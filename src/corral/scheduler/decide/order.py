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
from corral.scheduler.world.fairness import PassedTasks
from corral.scheduler.world.fleet import FleetWorker
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
        smith: CostModel,
        known: Estimates,
        shares: Shares,
        turns: PassedTasks,
        where: Mapping[str, TaskLine],
    ) -> None:
        self._smith = smith
        self._known = known
        self._shares = shares
        self._turns = turns
        self._where = where

    def pick(
        self,
        worker: FleetWorker,
        now: float,
        may: Callable[[TaskLine], bool] | None = None,
    ) -> tuple[TaskLine, Cost] | None:
        """The family this worker should serve now, if any is better served by it."""
        best: dict[str, Found] = {}
        late: Found | None = None
        for found in self._able(worker, now, may):
            rank, family, _ = found
            kind = _kind(family)
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
        _, family, cost = first
        hasty = family.hasty(now, cost.setup_s + cost.run_s)
        if hasty is None or family.gang_size:
            return family, cost
        if family.only is not None and hasty.need is not None:
            # What it needs may be other than what the next one does.
            own = self._smith.cost(worker, family, now, task=hasty)
            return family, cost if own is None else replace(own, first=hasty)
        return family, replace(cost, first=hasty)

    def _able(
        self, worker: FleetWorker, now: float, may: Callable[[TaskLine], bool] | None
    ) -> Iterator[Found]:
        victims: list[EvictionCandidate] | None = None
        some = self._worth_a_look(worker, now)
        for family in self._smith.not_left(worker, some, now):
            if family.only is not None and family.only != worker.worker_id:
                continue
            if may is not None and not may(family):
                continue
            if victims is None and family.model not in worker.models:
                victims = self._smith.victims(worker, now)
            cost = self._smith.offer(worker, family, now, victims)
            if cost is not None:
                yield self._rank(family, cost), family, cost

    def _rank(self, family: TaskLine, cost: Cost) -> Rank:
        """Scores within a percent are equal: then who came first."""
        level = self._level(family, cost) if family.buckets else 0
        score = int(64 * math.log2(cost.score))
        return family.priority >= CRITICAL, level, score, -family.since

    def _level(self, family: TaskLine, cost: Cost) -> int:
        """How many turns its owner is ahead of others; less than one does not count.

        A turn is what it is worth to change for: a task, or a model with a batch.
        """
        turn_s = cost.run_s
        if family.model is not None:
            turn_s = self._known.load_s(family.model) + BATCH * cost.run_s
        return -int(self._shares.debt_s(family) / max(turn_s, 1e-3))

    def _is_late(self, found: Found, now: float) -> bool:
        (_, level, _, _), family, _ = found
        # Who has more than its share waits for that reason, however long.
        return level == 0 and self._smith.tier(family, now) == 1

    def _overdue(
        self, worker: FleetWorker, late: Found, best: dict[str, Found], now: float
    ) -> Cost | None:
        """What the oldest of a line costs, if it may go now."""
        _, family, cost = late
        oldest = family.queue.oldest()
        if worker.was_late or oldest is None or family.gang_size:
            return None
        found = best.get(oldest.job_type)
        passes = found is not None and found[1].priority > _priority(family, oldest)
        if passes and self._owes(worker, oldest.job_type):
            return None
        if family.only is not None:
            # Such a line has tasks of several models.
            own = self._smith.cost(worker, family, now, task=oldest)
            if own is None:
                return None
            cost = own
        return replace(cost, first=oldest, is_late=True)

    def _owes(self, worker: FleetWorker, job_type: str) -> bool:
        """Were some passed before, which this worker could run now?"""
        waiting = worker.group.waiting
        for task_id in self._turns.owed(job_type):
            family = self._where.get(task_id)
            if family is None or waiting.get(family.key) is not family:
                continue
            if family.only in (None, worker.worker_id):
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
        for key, family in waiting.items():
            if family.model in worker.models:
                some[key] = family
                continue
            rest.append((family.weight(BATCH, now), -family.since, key))
            found = best.get(family.job_type)
            if found is None or family.priority > found.priority:
                best[family.job_type] = family
        some |= {family.key: family for family in best.values()}
        chosen = (*nlargest(_FEW, rest), *nsmallest(_OLDEST, rest, key=_came))
        return {**some, **{key: waiting[key] for _, _, key in chosen}}.values()

    def better(self, worker: FleetWorker, late: WaitingTask) -> Iterator[WaitingTask]:
        """Tasks of its type that stand before one that is overdue."""
        for family in worker.group.waiting.values():
            if family.only not in (None, worker.worker_id):
                continue
            for task in family.queue.tasks():
                is_of_type = task.job_type == late.job_type
                if is_of_type and _priority(family, task) > _priority(family, late):
                    yield task


def _kind(family: TaskLine) -> str:
    """The job type of its next task: a line of one worker has several."""
    head = family.queue.head() if family.only else None
    return head.job_type if head else family.job_type


def _came(row: tuple[float, int, str]) -> int:
    return -row[1]


def _priority(family: TaskLine, task: WaitingTask) -> int:
    return task.priority if family.counts_priority else 0


def _in_type(found: Found) -> tuple[int, Rank]:
    """Within a job type priority comes before everything."""
    return found[1].priority, found[0]
