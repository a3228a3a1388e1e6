"""Explains one task to whoever asks: what the scheduler says, and what we know of it.

Changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from corral.core.insight.learned import Figure
from corral.core.tasks.result_cache import cached_from
from corral.core.tasks.task import Attempt, State, Task
from corral.manager.cluster.state import Cluster
from corral.manager.context import ManagerContext
from corral.manager.tasks.reads import TaskReads
from corral.scheduler.explain.explain import MOST_WORKERS
from corral.scheduler.explain.values import ExpectedStart, Remedy, TaskExplanation
from corral.scheduler.plan import Reason
from corral.store.base import TaskStore

ENGINE_DOWN = Reason("engine_down", "Redis does not answer: orders cannot be sent")


@dataclass(frozen=True, slots=True)
class Explained:
    """A task, why it is where it is, and that in one sentence; `now` is the moment.

    `run` and `memory` are what tasks like it took, `attempts` those it had.
    """

    task: Task
    explanation: TaskExplanation
    headline: str
    now: float
    run: Figure | None
    memory: Figure | None
    attempts: Sequence[Attempt] = ()


class Rewording(Protocol):
    """Who knows more of a reason than the scheduler: which workers are on their way."""

    def reword(self, reason: Reason | None) -> Reason | None: ...


class Explain:
    """Asked from outside; nothing else of the manager asks it."""

    def __init__(
        self, ctx: ManagerContext, reads: TaskReads, scaling: Rewording
    ) -> None:
        self._cluster = ctx.cluster
        self._store: TaskStore = ctx.store.tasks
        self._clock = ctx.clock
        self._reads = reads
        self._scaling = scaling

    def why(self, task: Task) -> Reason | None:
        """Why a queued task waits."""
        if task.state is not State.QUEUED:
            return None
        if not self._cluster.is_engine_up:
            return ENGINE_DOWN
        now = self._clock.now().timestamp()
        return self._scaling.reword(self._cluster.scheduler.why(task.id, now))

    def start(self, task: Task, now: float) -> ExpectedStart | None:
        """When a task that only waits for its turn should start."""
        if task.state is not State.QUEUED:
            return None
        return self._cluster.scheduler.expect(task.id, now)

    def wait_s(self, job_type: str) -> float | None:
        """How long a new task of this type should wait, if known."""
        return self._cluster.scheduler.estimated_wait_s(job_type)

    def run_s(self, task: Task) -> float | None:
        """How long the task should take, if tasks like it have run."""
        return expected_s(self._cluster, task)

    def figures(self, task: Task) -> tuple[Figure | None, Figure | None]:
        """Seconds it should take, where it is or anywhere, and MB beside its model."""
        return expected(self._cluster, task)

    async def tell(self, task_id: str, *, is_all: bool = False) -> Explained:
        """All that can be said of a task, and what it went through.

        Raises:
            TaskNotFound: there is none.
        """
        task = await self._reads.get(task_id)
        attempts = await self._store.attempts(task_id)
        return replace(self.explain(task, is_all=is_all), attempts=attempts)

    def explain(self, task: Task, *, is_all: bool = False) -> Explained:
        """All that can be said of a task; with `is_all` of every worker."""
        now = self._clock.now().timestamp()
        cluster = self._cluster
        # Memory is ahead of the store by what is being written.
        task = cluster.tasks.get(task.id, task)
        most = len(cluster.workers) if is_all else MOST_WORKERS
        found = cluster.scheduler.explain(task.id, now, most)
        found = found or TaskExplanation(task.id)
        if task.state is State.QUEUED:
            if not cluster.is_engine_up:
                change = Remedy("engine", "starts when Redis answers again")
                found = replace(
                    found, reason=ENGINE_DOWN, changes=(change,), start=None
                )
            else:
                found = self._with_worker_on_its_way(found)
        elif found.reason is not None and found.reason.reason != "deadline_passed":
            # It moved on while it was looked for.
            found = TaskExplanation(task.id)
        if task.state is not State.TIMED_OUT and found.placement is None:
            found = _without_deadline(found)
        if found.placement is not None and found.placement.worker_id != task.worker_id:
            found = replace(found, placement=None) if task.worker_id else found
        return Explained(
            task, found, _headline(task, found), now, *expected(cluster, task)
        )

    def _with_worker_on_its_way(self, found: TaskExplanation) -> TaskExplanation:
        reason = self._scaling.reword(found.reason)
        if reason is found.reason:
            return found
        if reason is None or reason.reason == "no_worker":
            return replace(found, reason=reason)
        change = Remedy("wait", "starts when that worker is up", reason.details)
        return replace(found, reason=reason, changes=(change, *found.changes))


def _without_deadline(found: TaskExplanation) -> TaskExplanation:
    """A deadline that passed in an earlier run of the task says nothing now."""
    is_old = found.reason is not None and found.reason.reason == "deadline_passed"
    return TaskExplanation(found.task_id) if is_old else found


def _headline(task: Task, found: TaskExplanation) -> str:
    if found.reason is not None:
        verb = "waits" if task.state is State.QUEUED else "did not start"
        return f"Task {task.id} {verb}: {found.reason.message}."
    if task.worker_id is None:
        if task.state is State.QUEUED:
            return f"Task {task.id} is about to be sent to a worker."
        if (source := cached_from(task)) is not None:
            return f"Task {task.id} was answered with the kept result of {source}."
        return f"Task {task.id} ended as {task.state} without a worker."
    verb = {State.ASSIGNED: "is on its way to", State.RUNNING: "runs on"}.get(
        task.state, f"ended as {task.state} on"
    )
    where = f"worker {task.worker_id} of node {task.node_id}"
    why = f": {found.placement.message}" if found.placement else ""
    return f"Task {task.id} {verb} {where}{why}."


def expected_s(cluster: Cluster, task: Task) -> float | None:
    """How long the task should take, if tasks like it have run."""
    run, _ = expected(cluster, task)
    return run.value if run is not None else None


def expected(cluster: Cluster, task: Task) -> tuple[Figure | None, Figure | None]:
    """Seconds it should take, where it is or anywhere, and MB beside its model."""
    spec = task.spec
    kind = (spec.job_type, spec.model, cluster.units_of(spec))
    run = cluster.scheduler.expected_run(*kind, task.worker_id or "")
    return run, cluster.scheduler.working(*kind)
