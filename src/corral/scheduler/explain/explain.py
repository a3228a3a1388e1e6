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
        costs: CostModel,
        forecasts: Forecasts,
        decisions: Decisions,
    ) -> None:
        self._picture = picture
        self._costs = costs
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
        return self._why_nowhere(task, now) or why_no_worker(self._finder(task, now))

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

    def _finder(self, task: WaitingTask, now: float) -> ObstacleFinder:
        picture = self._picture
        line = self._family(task)
        return ObstacleFinder(
            task, line, picture.fleet, picture.estimates, self._costs, now
        )

    def _family(self, task: WaitingTask) -> TaskLine:
        """Its line; for a task that is in none yet, or no more, one like it."""
        found = self._picture.line_by_task.get(task.task_id)
        key = self._picture.gate.line_key(task)
        found = found or self._picture.lines.get(key)
        if found:
            return found
        alike = self._picture.detached(task)
        alike.push(task)
        return alike

    def _waiting(self, task: WaitingTask, now: float, most: int) -> TaskExplanation:
        finder = self._finder(task, now)
        nowhere = self._why_nowhere(task, now)
        reason = nowhere or why_no_worker(finder)
        start = self._start(finder, nowhere)
        in_s = start.at - now if start is not None else None
        looks = finder.looks(most)
        if nowhere is not None:
            found = self._lifted(finder, looks, nowhere)
        else:
            found = changes(finder, looks, reason, in_s)
        candidates = _candidates(finder, looks)
        is_in_line = task.task_id in self._picture.line_by_task
        return TaskExplanation(
            task.task_id,
            reason,
            finder.line.queue.position(task) if is_in_line else 0,
            len(finder.line) if is_in_line else 0,
            start,
            self._run_s(finder, candidates),
            (*found, *_too_late(task, start, now)),
            candidates,
            len(finder.fleet.workers),
        )

    def _start(
        self, finder: ObstacleFinder, nowhere: Reason | None
    ) -> ExpectedStart | None:
        task, now = finder.task, finder.now
        if nowhere is None and task.task_id in self._picture.line_by_task:
            return self._forecasts.expect(task, finder.line, now)
        if nowhere is not None and nowhere.reason == "not_before":
            return ExpectedStart(task.run_after, task.run_after, task.run_after)
        return None

    def _run_s(
        self, finder: ObstacleFinder, candidates: tuple[WorkerCandidate, ...]
    ) -> float | None:
        """What it takes where it would go, if tasks like it have run."""
        task = finder.task
        if finder.estimates.recent_s(task.job_type) is None:
            return None
        terms = next((c.terms for c in candidates if c.terms), None)
        if terms is not None:
            return terms.run_s
        return finder.estimates.run_s(task.job_type, task.model, task.units)

    def _lifted(
        self, finder: ObstacleFinder, looks: list[WorkerObstacles], nowhere: Reason
    ) -> tuple[Remedy, ...]:
        """What would end a state that keeps it from every worker, and what then."""
        first = own_change(nowhere, self._picture.gate.shares.out)
        after = why_no_worker(finder)
        if after.reason in _BUSY:
            return (first,)
        words = f"{first.message}; then {after.message}"
        details = {**first.details, "then": after.reason}
        return (
            replace(first, message=words, details=details),
            *changes(finder, looks, after, None),
        )

    # one that came too late ----------------------------------------------------------
    def _late(
        self, task: WaitingTask, at: float, now: float, most: int
    ) -> TaskExplanation:
        deadline = task.deadline or at
        finder = self._finder(replace(task, deadline=None), now)
        why = self._why_nowhere(task, deadline) or why_no_worker(finder)
        words = f"its deadline passed before it could start; {why.message}"
        details = {"deadline": deadline, "why": why.reason, **why.details}
        wait_s = self._forecasts.wait_s(task, finder.line, now)
        later = (
            f"at least {wait_s:.0f} s from then" if wait_s else "a later one, or none"
        )
        found = Remedy(
            "deadline",
            f"submit it again with another deadline: {later}",
            {"deadline": deadline, "expected_wait_s": wait_s},
        )
        reason = Reason("deadline_passed", words, details)
        looks = finder.looks(most)
        is_busy = why.reason in _BUSY
        more = () if is_busy else changes(finder, looks, why, None)
        return TaskExplanation(
            task.task_id,
            reason,
            changes=(found, *more),
            candidates=_candidates(finder, looks),
            workers=len(finder.fleet.workers),
        )


def _candidates(
    finder: ObstacleFinder, looks: list[WorkerObstacles]
) -> tuple[WorkerCandidate, ...]:
    """Every worker, those that could start it soonest first."""
    fleet, task = finder.fleet, finder.task
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
