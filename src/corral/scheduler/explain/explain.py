"""Explains a task: why it waits and what would start it, or why it ran where it did.

Nothing is prepared for this but the last decisions; the rest is worked out from the
same state, by the same code, when somebody asks.
"""

from __future__ import annotations

from dataclasses import replace

from corral.core.tasks.result_cache import awaited_in
from corral.scheduler.decide.cost import CostModel
from corral.scheduler.events import WaitingTask, WorkerAway, WorkerBroken
from corral.scheduler.explain.decisions import Decisions, placement_of
from corral.scheduler.explain.forecast import Forecasts
from corral.scheduler.explain.obstacles import (
    ObstacleFinder,
    WorkerObstacles,
    out_of_work,
)
from corral.scheduler.explain.reasons import why_no_worker
from corral.scheduler.explain.remedy import changes
from corral.scheduler.explain.shortage import own_change
from corral.scheduler.explain.values import (
    FREE,
    ExpectedStart,
    Remedy,
    TaskExplanation,
    WorkerCandidate,
)
from corral.scheduler.plan import Reason
from corral.scheduler.world.line import TaskLine
from corral.scheduler.world.picture import Picture

MOST_WORKERS = 2000
"""With so many to look at an answer takes some hundredths of a second."""
_BUSY = frozenset({"workers_busy", "waits_for_holder", "memory_in_use"})
"""What ends by itself once nothing else keeps a task back."""


class Explainer:
    def __init__(
        self,
        picture: Picture,
        smith: CostModel,
        forecasts: Forecasts,
        decisions: Decisions,
    ) -> None:
        self._picture = picture
        self._smith = smith
        self._forecasts = forecasts
        self._decisions = decisions

    def why(self, task_id: str, now: float) -> Reason | None:
        """Why this task waits; None when it does not wait here."""
        task = self._picture.find(task_id)
        return self._why(task, now) if task is not None else None

    def explain(
        self, task_id: str, now: float, most: int = MOST_WORKERS
    ) -> TaskExplanation | None:
        """All that can be said of a task; None when nothing is known of it.

        Looks at `most` workers.
        """
        task = self._picture.find(task_id)
        if task is not None:
            return self._waiting(task, now, most)
        placed = self._decisions.placed(task_id)
        expired = self._decisions.expired(task_id)
        if expired is not None and (placed is None or placed.at < expired[1]):
            return self._late(*expired, now, most)
        if placed is None:
            return None
        return TaskExplanation(
            task_id, run_s=placed.cost.run_s, placement=placement_of(placed)
        )

    # one that waits -----------------------------------------------------------------
    def _why(self, task: WaitingTask, now: float) -> Reason:
        return self._why_nowhere(task, now) or why_no_worker(self._bench(task, now))

    def _why_nowhere(self, task: WaitingTask, now: float) -> Reason | None:
        """What keeps it from every worker."""
        if (other := awaited_in(task.needs)) is not None:
            words = f"waits for the answer of task {other}, which asks the same"
            return Reason("same_question", words, {"task_id": other})
        if task.needs:
            return Reason(
                "dependencies",
                f"waits for {len(task.needs)} other task(s) to complete",
                {"depends_on": sorted(task.needs)},
            )
        if task.run_after > now:
            wait_s = round(task.run_after - now, 1)
            return Reason(
                "not_before",
                f"may start in {wait_s} s (run_after or retry backoff)",
                {"starts_in_s": wait_s},
            )
        if self._picture.is_paused:
            return Reason("draining", "the cluster is draining: nothing new starts")
        return self._picture.gate.why(task, now)

    def _bench(self, task: WaitingTask, now: float) -> ObstacleFinder:
        picture = self._picture
        family = self._family(task)
        return ObstacleFinder(
            task, family, picture.fleet, picture.known, self._smith, now
        )

    def _family(self, task: WaitingTask) -> TaskLine:
        """Its line; for a task that is in none yet, or no more, one like it."""
        found = self._picture.where.get(task.task_id)
        key = self._picture.gate.line_of(task)
        found = found or self._picture.families.get(key)
        if found:
            return found
        alike = self._picture.detached(task)
        alike.push(task)
        return alike

    def _waiting(self, task: WaitingTask, now: float, most: int) -> TaskExplanation:
        bench = self._bench(task, now)
        nowhere = self._why_nowhere(task, now)
        reason = nowhere or why_no_worker(bench)
        start = self._start(bench, nowhere)
        in_s = start.at - now if start is not None else None
        looks = bench.looks(most)
        if nowhere is not None:
            found = self._lifted(bench, looks, nowhere)
        else:
            found = changes(bench, looks, reason, in_s)
        candidates = _candidates(bench, looks)
        is_in_line = task.task_id in self._picture.where
        return TaskExplanation(
            task.task_id,
            reason,
            bench.family.queue.position(task) if is_in_line else 0,
            len(bench.family) if is_in_line else 0,
            start,
            self._run_s(bench, candidates),
            (*found, *_too_late(task, start, now)),
            candidates,
            len(bench.fleet.workers),
        )

    def _start(
        self, bench: ObstacleFinder, nowhere: Reason | None
    ) -> ExpectedStart | None:
        task, now = bench.task, bench.now
        if nowhere is None and task.task_id in self._picture.where:
            return self._forecasts.expect(task, bench.family, now)
        if nowhere is not None and nowhere.reason == "not_before":
            return ExpectedStart(task.run_after, task.run_after, task.run_after)
        return None

    def _run_s(
        self, bench: ObstacleFinder, candidates: tuple[WorkerCandidate, ...]
    ) -> float | None:
        """What it takes where it would go, if tasks like it have run."""
        task = bench.task
        if bench.known.recent_s(task.job_type) is None:
            return None
        terms = next((c.terms for c in candidates if c.terms), None)
        if terms is not None:
            return terms.run_s
        return bench.known.run_s(task.job_type, task.model, task.units)

    def _lifted(
        self, bench: ObstacleFinder, looks: list[WorkerObstacles], nowhere: Reason
    ) -> tuple[Remedy, ...]:
        """What would end a state that keeps it from every worker, and what then."""
        first = own_change(nowhere, self._picture.gate.shares.out)
        after = why_no_worker(bench)
        if after.reason in _BUSY:
            return (first,)
        words = f"{first.message}; then {after.message}"
        details = {**first.details, "then": after.reason}
        return (
            replace(first, message=words, details=details),
            *changes(bench, looks, after, None),
        )

    # one that came too late ----------------------------------------------------------
    def _late(
        self, task: WaitingTask, at: float, now: float, most: int
    ) -> TaskExplanation:
        deadline = task.deadline or at
        bench = self._bench(replace(task, deadline=None), now)
        why = self._why_nowhere(task, deadline) or why_no_worker(bench)
        words = f"its deadline passed before it could start; {why.message}"
        details = {"deadline": deadline, "why": why.reason, **why.details}
        wait_s = self._forecasts.wait_s(task, bench.family, now)
        later = (
            f"at least {wait_s:.0f} s from then" if wait_s else "a later one, or none"
        )
        found = Remedy(
            "deadline",
            f"submit it again with another deadline: {later}",
            {"deadline": deadline, "expected_wait_s": wait_s},
        )
        reason = Reason("deadline_passed", words, details)
        looks = bench.looks(most)
        is_busy = why.reason in _BUSY
        more = () if is_busy else changes(bench, looks, why, None)
        return TaskExplanation(
            task.task_id,
            reason,
            changes=(found, *more),
            candidates=_candidates(bench, looks),
            workers=len(bench.fleet.workers),
        )


def _candidates(
    bench: ObstacleFinder, looks: list[WorkerObstacles]
) -> tuple[WorkerCandidate, ...]:
    """Every worker, those that could start it soonest first."""
    fleet, task = bench.fleet, bench.task
    found = [look.candidate() for look in looks]
    out: list[WorkerBroken | WorkerAway] = [*fleet.broken.values()]
    out += fleet.away.values()
    found += [out_of_work(w, fleet) for w in out if task.job_type in w.job_types]
    return tuple(sorted(found, key=_nearness))


def _nearness(candidate: WorkerCandidate) -> tuple[int, float, str]:
    terms = candidate.terms
    if terms is not None:
        order = 0 if candidate.verdict == FREE else 1
        return order, terms.total_s, candidate.worker_id
    return 2 + (candidate.verdict == "type"), 0.0, candidate.worker_id


def _too_late(
    task: WaitingTask, start: ExpectedStart | None, now: float
) -> tuple[Remedy, ...]:
    if task.deadline is None or start is None or start.at <= task.deadline:
        return ()
    left_s, in_s = task.deadline - now, start.at - now
    words = (
        f"its deadline is in {left_s:.0f} s, before its turn in about {in_s:.0f} s: "
        "give it a later one or a higher priority"
    )
    return (Remedy("deadline", words, {"deadline": task.deadline}),)
