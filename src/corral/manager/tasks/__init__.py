"""A task from its submission to its end."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from corral.core.tasks.job_type import OWN_TYPES
from corral.core.tasks.outcome import RetryPolicy
from corral.core.tasks.task import State
from corral.manager.access.secrets import NamedSecrets
from corral.manager.context import ManagerContext
from corral.manager.feature import Feature, Loop
from corral.manager.output.artifacts import Artifacts
from corral.manager.output.objects import Objects
from corral.manager.prometheus import Count, Gauge, MetricFamily, largest
from corral.manager.tasks.cancel import Cancel
from corral.manager.tasks.coalesce import Coalesce
from corral.manager.tasks.dispatch import Dispatch
from corral.manager.tasks.gangs import Gangs
from corral.manager.tasks.learned import LearnedFigures
from corral.manager.tasks.reads import TaskReads
from corral.manager.tasks.report import TaskReports
from corral.manager.tasks.requeue import Requeue
from corral.manager.tasks.restore import Restore
from corral.manager.tasks.result_cache import ResultCache
from corral.manager.tasks.settle import Settle
from corral.manager.tasks.submit import Submit
from corral.scheduler.events import Paused
from corral.store.base import TaskStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TasksConfig:
    """`free_after_s`: a task that must not overlap is given to others so long after
    its node was last heard.
    """

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    result_cache_bytes: int = 256 << 20
    free_after_s: float = 25.0


class Tasks(Feature):
    def __init__(
        self,
        ctx: ManagerContext,
        secrets: NamedSecrets,
        artifacts: Artifacts,
        objects: Objects,
        config: TasksConfig,
    ) -> None:
        self._cluster = ctx.cluster
        self._store: TaskStore = ctx.store.tasks
        self.settle = Settle(ctx, config.retry)
        self.dispatch = Dispatch(ctx, self.settle)
        # Who listens to the same signal hears it in this order: a result is kept
        # before those who asked the same are given it.
        self.results = ResultCache(ctx, config.result_cache_bytes)
        self._coalesce = Coalesce(ctx, self.results, self.settle, self.dispatch)
        self.gangs = Gangs(ctx, self.settle, self.dispatch)
        self.submissions = Submit(
            ctx, self.dispatch, self.settle, secrets, self._coalesce, objects
        )
        self.reports = TaskReports(ctx, self.settle, self.dispatch)
        self.restore = Restore(ctx, config.free_after_s)
        self._learned = LearnedFigures(ctx)
        cancel = Cancel(ctx, self.settle, self.dispatch)
        requeue = Requeue(ctx, self.settle, self.dispatch, artifacts)
        self.reads = TaskReads(ctx)
        self.get = self.reads.get
        self.wait = self.reads.wait
        self.submit = self.submissions.submit
        self.cancel = cancel.cancel
        self.drop = cancel.drop
        self.conclude = cancel.conclude
        self.give_up = cancel.give_up
        self.requeue = requeue.requeue

    async def open(self) -> None:
        """Let memory have the live part of the store; all else is there already."""
        live = await self._store.live_tasks()
        self._cluster.tasks.update((task.id, task) for task in live)
        homeless = [task for task in live if not self.restore.take_over(task)]
        await self.results.load()
        await self._learned.load()
        await self.dispatch.give_up(homeless)
        await self.resolve()
        log.info("loaded %d live tasks, term %d", len(live), self._cluster.term)

    def loops(self) -> Sequence[Loop]:
        return (
            Loop("scheduling", 0.1, self.dispatch.run),
            self._learned.loop(),
            self.results.loop(),
            self._coalesce.loop(),
        )

    def release(self) -> None:
        self._cluster.waiters.release()

    async def close(self) -> None:
        await self._learned.close()
        await self.results.close()

    async def resolve(self) -> None:
        """Look up what queued tasks depend on, where that is no longer live."""
        await self.settle.resolve(
            need
            for task in self._cluster.tasks.values()
            if task.state is State.QUEUED
            for need in task.spec.depends_on
        )

    # verbs ---------------------------------------------------------------------
    def drain(self, is_paused: bool = True) -> int:
        """Stop (or go on) handing out work; how many tasks are still with workers."""
        self._cluster.scheduler.apply(Paused(is_paused))
        self.dispatch.kick()
        return sum(t.state is not State.QUEUED for t in self._cluster.tasks.values())

    # figures -------------------------------------------------------------------
    def gauges(self) -> Iterator[MetricFamily]:
        scheduler = self._cluster.scheduler
        by_type = scheduler.waiting_by_type()
        known = (name for name in self._cluster.job_types if name not in OWN_TYPES)
        counts = dict.fromkeys(known, 0.0)
        counts |= {name: n for name, n in by_type.items() if name not in OWN_TYPES}
        yield Gauge(
            "corral_queue_depth",
            "Tasks that wait, by their type.",
            largest(counts),
            ("task_type",),
        )
        held = max(0, len(self._cluster.tasks) - scheduler.waiting_count())
        yield Gauge("corral_tasks_active", "Tasks that workers have in hand.", held)
        is_up = float(self._cluster.is_engine_up)
        yield Gauge("corral_engine_up", "1 while Redis answers.", is_up)
        yield from self._kept_results()

    def _kept_results(self) -> Iterator[MetricFamily]:
        of_types, name = self.results.by_type().items(), "corral_result_cache"
        labels = ("task_type",)
        yield Count(
            f"{name}_hits_total",
            "Tasks answered from kept results.",
            largest({kind: told.hits for kind, told in of_types}),
            labels,
        )
        yield Count(
            f"{name}_misses_total",
            "Tasks whose result was not kept, of types that keep results.",
            largest({kind: told.misses for kind, told in of_types}),
            labels,
        )
        yield Gauge(
            f"{name}_entries",
            "Results that are kept.",
            largest({kind: told.kept.entries for kind, told in of_types}),
            labels,
        )
        yield Gauge(
            f"{name}_bytes",
            "What kept results take.",
            largest({kind: told.kept.size for kind, told in of_types}),
            labels,
        )
