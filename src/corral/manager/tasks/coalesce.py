"""Equal tasks under way at once: one runs, the others wait and take its result.

Only tasks whose results are kept pass here. All of it is in memory: after a restart,
and whenever the one that runs does not complete, each runs for itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from corral.core.tasks.options import NO_OPTIONS
from corral.core.tasks.outcome import OutcomeKind, Settlement
from corral.core.tasks.result_cache import KeptResult, same_as
from corral.core.tasks.task import State, Task, TaskSpec
from corral.errors import CorralError
from corral.manager.context import ManagerContext
from corral.manager.feature import Loop
from corral.manager.tasks.dispatch import Dispatch
from corral.manager.tasks.result_cache import MOST_BYTES, ResultCache, is_asked
from corral.manager.tasks.settle import Settle
from corral.scheduler.events import DependencyMet

_PERIOD_S = 60.0
# Options that say nothing of where and when a task may run.
_IDLE: dict[str, Any] = {
    name: getattr(NO_OPTIONS, name)
    for name in ("question", "same_as", "notify", "request_id", "traceparent")
}


class Coalesce:
    def __init__(
        self,
        ctx: ManagerContext,
        results: ResultCache,
        settle: Settle,
        dispatch: Dispatch,
    ) -> None:
        self._cluster = ctx.cluster
        self.results = results
        self._settle = settle
        self._dispatch = dispatch
        self._clock = ctx.clock
        self._first: dict[str, TaskSpec] = {}
        """By question: the task whose answer is awaited."""
        self._coming: set[str] = set()
        """Tasks that are being stored."""
        self._others: dict[str, list[str]] = {}
        """By the task they wait for: those that ask the same."""
        self._answering: dict[str, asyncio.Task[None]] = {}
        """By the task whose result it is: what gives it to the others."""
        ctx.signals.settled.listen(self._on_settled)
        ctx.signals.ended.listen(self._on_ended)

    def loop(self) -> Loop:
        return Loop("equal tasks", _PERIOD_S, self._step)

    async def _step(self) -> None:
        self.sweep()

    def join(self, task: Task) -> Task:
        """A task that asks what another is at waits for that, and says so.

        Follow with `stored`.
        """
        spec = task.spec
        question = spec.options.question
        if question is None or spec.deadline is not None:
            return task
        if not is_asked(spec, self._clock.now()):
            return task
        key = question.key
        first = self._first.get(key)
        if first is None or not self._may_wait(spec, first):
            self._first[key] = spec
            self._coming.add(spec.id)
            return task
        self._others.setdefault(first.id, []).append(spec.id)
        options = replace(spec.options, same_as=first.id)
        return replace(task, spec=replace(spec, options=options))

    def _may_wait(self, spec: TaskSpec, first: TaskSpec) -> bool:
        """Is it surely no later than on its own, but for what is left of the first?"""
        if spec.id == first.id or first.priority < spec.priority:
            return False
        task = self._cluster.tasks.get(first.id)
        if task is None and first.id not in self._coming:
            return False
        if task is not None and task.state is not State.QUEUED:
            return True
        # What holds the first back would have to hold this one back, too.
        return _terms(first) == _terms(spec)

    def stored(self, tasks: Sequence[Task]) -> None:
        """These are in the store, or were refused: nobody waits for what is not."""
        self._coming.difference_update(task.id for task in tasks)
        self._look_at(task.spec.options.same_as or task.id for task in tasks)

    def sweep(self) -> None:
        """Let nobody wait for a task that is not there, however that came about."""
        self._look_at(list(self._others))
        live = self._cluster.tasks.keys() | self._coming
        self._first = {k: spec for k, spec in self._first.items() if spec.id in live}

    def _look_at(self, firsts: Iterable[str]) -> None:
        for first in set(firsts) - self._coming:
            is_answering = first in self._answering
            if first not in self._cluster.tasks and not is_answering:
                self._release(first)

    def _on_settled(self, settled: Sequence[tuple[Task, Settlement]]) -> None:
        for task, row in settled:
            question = task.spec.options.question
            if question is not None and row.state is State.QUEUED:
                self._over(task, question.key, row.state)

    def _on_ended(self, ended: Sequence[tuple[Task, State]]) -> None:
        for task, state in ended:
            question = task.spec.options.question
            if question is not None:
                self._over(task, question.key, state)

    def _over(self, task: Task, key: str, state: State) -> None:
        """A task whose result is to be kept ended, or waits once more."""
        first = self._first.get(key)
        if first is not None and first.id == task.id and state is not State.QUEUED:
            del self._first[key]
        if task.id not in self._others:
            return
        kept = self.results.fresh(key) if state is State.COMPLETED else None
        if kept is None or kept.task_id != task.id:
            self._release(task.id)
            return
        job = asyncio.create_task(self._answer(task.id, kept))
        self._answering[task.id] = job

    async def _answer(self, first: str, kept: KeptResult) -> None:
        """Give the others the result; who cannot be given it runs."""
        waiting = self._waiting(first)[: max(1, MOST_BYTES // kept.size)]
        rows = [self._row(task, kept) for task in waiting]
        try:
            done = await self._settle.finish(rows)
        except CorralError:
            done = set()
        finally:
            del self._answering[first]
            self._release(first)
        for _ in done:
            self.results.found(kept.job_type)

    def _row(self, task: Task, kept: KeptResult) -> Settlement:
        return Settlement(
            task_id=task.id,
            attempt=task.attempt,
            state=State.COMPLETED,
            outcome=OutcomeKind.COMPLETED,
            tries=task.tries,
            losses=task.losses,
            finished_at=self._clock.now(),
            result=kept.result,
        )

    def _waiting(self, first: str) -> Sequence[Task]:
        """Those that still wait for it."""
        others = (self._cluster.tasks.get(id_) for id_ in self._others.get(first, ()))
        return [task for task in others if task and task.state is State.QUEUED]

    def _release(self, first: str) -> None:
        """Nobody waits for this one any more."""
        self._others.pop(first, None)
        need = same_as(first)
        if self._cluster.scheduler.dependents(need):
            self._cluster.scheduler.apply(DependencyMet(need))
            self._dispatch.kick()


def _terms(spec: TaskSpec) -> tuple[object, ...]:
    """All that decides where and when a task may run."""
    return spec.owner, spec.overlap, spec.labels, replace(spec.options, **_IDLE)
