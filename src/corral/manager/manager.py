"""The manager: wires the verbs to one picture of the cluster and runs the loops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from corral.core.report import Outcome, OutcomeKind
from corral.core.retry import RetryPolicy
from corral.core.task import State, Task, TaskError
from corral.engine.base import Engine
from corral.errors import (
    Conflict,
    EngineUnavailable,
    StoreUnavailable,
    TaskNotFound,
)
from corral.manager.access import Access, Limits
from corral.manager.calling import Calling
from corral.manager.clearing import Clearing
from corral.manager.clock import Clock, new_id
from corral.manager.dispatching import Dispatching
from corral.manager.exec import Execs
from corral.manager.following import Following
from corral.manager.garbage import Garbage
from corral.manager.gateway import Gateway
from corral.manager.job_types import JobTypes
from corral.manager.keeping import Keeping
from corral.manager.loop import Loop
from corral.manager.monitor import Monitor, Prune
from corral.manager.neighbour import PERIOD_S, Neighbour, NeighbourConfig
from corral.manager.notifying import NotifyConfig, Notifying
from corral.manager.own_worker import OwnWorkers
from corral.manager.registry import Registry
from corral.manager.reporting import Reporting
from corral.manager.rescue import WATCH_S, Liveness, Rescue
from corral.manager.restarting import Restarting
from corral.manager.schedules import Schedules
from corral.manager.secret import webhook_secret
from corral.manager.secrets_vault import Vault
from corral.manager.settling import Settling
from corral.manager.state import Cluster, NodeLink, WorkerLink
from corral.manager.stopping import Stopping
from corral.manager.submitting import Submitting
from corral.manager.target import GatewayConfig
from corral.manager.worker_types import WorkerTypes
from corral.scheduler.scheduler import Policy, Scheduler
from corral.scheduler.value import Paused, Reason, TasksGone, TasksQueued
from corral.store.base import Retention, Store
from corral.store.objects import ObjectStore, in_memory

log = logging.getLogger(__name__)
_CANCEL_TRIES = 5


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """The settings the manager needs, already read."""

    cluster_secret: bytes
    cluster_name: str = "corral"
    policy: Policy = field(default_factory=Policy)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    liveness: Liveness = field(default_factory=Liveness)
    limits: Limits = field(default_factory=Limits)
    keep: Retention = field(
        default_factory=lambda: Retention(30 * 86400, 30 * 86400, 86400, 365 * 86400)
    )
    artifact_limit_bytes: int = 10 << 30
    keep_objects_s: float = 7 * 86400.0
    beat_s: float = 5.0
    fence_after_s: float = 90.0
    sample_s: float = 30.0
    default_timeout_s: float | None = 300.0
    is_open: bool = False
    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    worker_ports: tuple[int, ...] = tuple(range(8092, 8112))
    neighbour: NeighbourConfig | None = None


class Manager:
    """One leader. `start` before use, `stop` after."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        config: ManagerConfig,
        clock: Clock | None = None,
        objects: ObjectStore | None = None,
    ) -> None:
        self.store = store
        self.objects = objects or in_memory()
        self.engine = engine
        self.config = config
        self.clock = clock or Clock()
        self.cluster = Cluster(Scheduler(config.policy))
        self.access = Access(store, self.clock, config.limits, config.is_open)
        self.settling = Settling(self.cluster, store, self.clock, config.retry)
        self.dispatching = Dispatching(
            self.cluster,
            store,
            engine,
            self.settling,
            self.clock,
            config.cluster_secret,
        )
        self.vault = Vault(self.cluster, store, self.clock, config.cluster_secret)
        self.submitting = Submitting(
            self.cluster,
            store,
            self.dispatching,
            self.settling,
            self.clock,
            self.vault,
        )
        self.reporting = Reporting(
            self.cluster, store, self.settling, self.dispatching, self.clock
        )
        self.execs = Execs(self.cluster, store, engine, self.clock)
        self.registry = Registry(
            self.cluster, store, self.settling, self.dispatching, self.clock
        )
        self.keeping = Keeping(
            self.cluster,
            store,
            self.objects,
            self.clock,
            config.artifact_limit_bytes,
        )
        self.following = Following(store, self.cluster.bells, self.cluster.progress)
        self._add_workers()
        self._add_gateway()
        self._add_loops()
        self.started_at: datetime = self.clock.now()
        self.deposed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def _add_workers(self) -> None:
        self.worker_types = WorkerTypes(
            self.cluster,
            self.store,
            self.registry,
            self.clock,
            self.objects,
            self.config.worker_ports,
        )
        self.stopping = Stopping(self.cluster, self.registry, self.worker_types)
        self.restarting = Restarting(
            self.cluster, self.store, self.registry, self.dispatching
        )

    def _add_gateway(self) -> None:
        own = OwnWorkers(self.cluster, self.config.cluster_secret)
        self.gateway = Gateway(
            self.cluster, self.store, self.clock, self.config.gateway, own.token_for
        )
        self.job_types = JobTypes(
            self.cluster,
            self.store,
            self.registry,
            self.gateway,
            self.settling,
            self.dispatching,
        )
        self.calling = Calling(
            self.cluster,
            self.gateway,
            self.settling,
            self.reporting,
            self.dispatching,
            self.clock,
        )

    def _add_loops(self) -> None:
        self.rescue = Rescue(
            self.cluster,
            self.store,
            self.engine,
            self.registry,
            self.settling,
            self.dispatching,
            self.clock,
            self.config.liveness,
            self.config.cluster_secret,
        )
        self.clearing = Clearing(
            self.cluster,
            self.store,
            self.settling,
            self.registry,
            self.rescue,
            self.clock,
            self.drop,
        )
        self.monitor = Monitor(self.cluster, self.store, self.access, self.clock)
        self.prune = Prune(self.store, self.clock, self.config.keep)
        self.garbage = Garbage(
            self.cluster,
            self.store,
            self.objects,
            self.clock,
            self.config.keep_objects_s,
        )
        self.schedules = Schedules(
            self.cluster, self.store, self.submitting, self.clock
        )
        secret = webhook_secret(self.config.cluster_secret)
        self.notifying = Notifying(
            self.cluster,
            self.store,
            self.clock,
            NotifyConfig(secret, self.config.gateway),
        )
        self.neighbour: Neighbour | None = None
        if self.config.neighbour is not None:
            self.neighbour = Neighbour(
                self.cluster, self.store, self.clock, self.config.neighbour
            )

    # life --------------------------------------------------------------------
    async def start(self) -> None:
        """Take the lead, load the live part of the store, start the loops."""
        now = self.clock.now()
        self.cluster.term = await self.store.take_lead(new_id("m"), now)
        await self.access.load()
        await self.vault.load()
        await self._load()
        self._spawn(self._schedule())
        deposed = self.deposed.set
        self._spawn(Loop("rescue", 1.0, self.rescue.step, deposed).run())
        self._spawn(Loop("nodes", WATCH_S, self.rescue.watch_nodes, deposed).run())
        self._spawn(Loop("monitor", 1.0, self.monitor.step, deposed).run())
        self._spawn(Loop("prune", 600.0, self.prune.step, deposed).run())
        self._spawn(Loop("garbage", 60.0, self.garbage.step, deposed).run())
        await self.schedules.load()
        self._spawn(Loop("schedules", 1.0, self.schedules.step, deposed).run())
        await self.notifying.open()
        self._spawn(Loop("notifying", 0.1, self.notifying.step, deposed).run())
        if self.neighbour is not None:
            await self.neighbour.open()
            self._spawn(Loop("neighbour", PERIOD_S, self.neighbour.step, deposed).run())
        self.dispatching.kick()

    async def _schedule(self) -> None:
        await Loop("scheduling", 0.1, self.dispatching.run, self.deposed.set).run()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(coroutine))

    def hush(self) -> None:
        """Answer every long poll now, so that the server can close."""
        self.cluster.waiters.release()
        self.cluster.bells.release()
        self.execs.hush()
        for link in self.cluster.nodes.values():
            link.touch_desired()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.calling.stop()
        await self.gateway.close()
        await self.notifying.close()
        if self.neighbour is not None:
            await self.neighbour.close()
        await self.access.flush_audit()
        await self.engine.close()
        await self.store.close()

    async def _load(self) -> None:
        cluster, now = self.cluster, self.clock.monotonic()
        for job_type in await self.store.job_types():
            cluster.set_job_type(job_type)
        await self.gateway.load()
        cluster.worker_types = {t.name: t for t in await self.store.worker_types()}
        for node in await self.store.nodes():
            # Every lease gets a fresh grace: silence was ours, not theirs.
            # The former self's versions must not come again for another wish.
            version = cluster.term << 20
            cluster.nodes[node.id] = NodeLink(node, now, desired_version=version)
        for worker in await self.store.workers():
            cluster.workers[worker.id] = WorkerLink(worker)
        live = await self.store.live_tasks()
        cluster.tasks = {t.id: t for t in live}
        homeless = [task for task in live if not self.rescue.take_over(task)]
        await self.dispatching.give_up(homeless)
        await self.rescue.resolve()
        log.info("loaded %d live tasks, term %d", len(live), cluster.term)

    # verbs on one task -------------------------------------------------------
    async def cancel(self, task_id: str) -> None:
        """Cancel a live task; a running one is killed on its worker.

        Raises:
            TaskNotFound, Conflict: unknown, or it had ended already.
        """
        for _ in range(_CANCEL_TRIES):
            task = self.cluster.tasks.get(task_id)
            if task is None:
                stored = await self._stored(task_id)
                raise Conflict(
                    f"task {task_id} has already ended as {stored.state}",
                    status=str(stored.state),
                )
            error = TaskError("cancelled", "cancelled on request")
            outcome = Outcome(task.id, task.attempt, OutcomeKind.CANCELLED, error=error)
            if await self.settling.settle([outcome]):
                await self.drop(task)
                return
            # It moved on in the same moment: look again.
        self.cluster.is_dirty = True
        raise StoreUnavailable(f"task {task_id} is changing hands; try again")

    async def drop(self, task: Task) -> None:
        """Tell the worker that has it, if one has, to stop."""
        self.calling.drop(task.id, task.attempt)
        link = self.cluster.workers.get(task.worker_id or "")
        if link is not None and link.worker.incarnation == task.incarnation:
            link.drops.add((task.id, task.attempt))
            # A bell that cannot be rung only costs time: every beat repeats the drop.
            with contextlib.suppress(EngineUnavailable):
                await self.engine.ring([link.id])
        self.dispatching.kick()

    async def requeue(self, task_id: str) -> Task:
        """Run an ended task again under the same id."""
        stored = await self._stored(task_id)
        if stored.is_terminal:
            await self._check_needs(stored)
            await self.keeping.restart(stored)
        task = await self.store.requeue_task(
            self.cluster.term, task_id, self.clock.now()
        )
        if task is None:
            raise Conflict(
                f"task {task_id} is {stored.state}; only ended tasks can be requeued",
                status=str(stored.state),
            )
        if (known := self.cluster.tasks.get(task.id)) is not None:
            # That it had ended is news here: the answer to that write was lost.
            self.cluster.close_attempt(known)
            self.cluster.scheduler.apply(TasksGone((task.id,)))
        self.cluster.tasks[task.id] = task
        waiting = self.cluster.waiting(task, frozenset(task.spec.depends_on))
        self.cluster.scheduler.apply(TasksQueued((waiting,)))
        await self.settling.resolve(task.spec.depends_on)
        self.dispatching.kick()
        return task

    async def _check_needs(self, task: Task) -> None:
        for need in await self.store.get_tasks(task.spec.depends_on):
            if need.is_terminal and need.state is not State.COMPLETED:
                raise Conflict(
                    f"task {need.id}, which it depends on, is {need.state}: "
                    "requeue that one first",
                    depends_on=need.id,
                )

    async def _stored(self, task_id: str) -> Task:
        task = await self.store.get_task(task_id)
        if task is None:
            raise TaskNotFound(f"no task {task_id!r}", task_id=task_id)
        return task

    async def wait(self, task_ids: list[str], timeout_s: float) -> None:
        await self.cluster.waiters.wait(task_ids, self.cluster.is_live, timeout_s)

    def why(self, task: Task) -> Reason | None:
        """Why a queued task waits."""
        if task.state is not State.QUEUED:
            return None
        now = self.clock.now().timestamp()
        if not self.dispatching.is_engine_up:
            return Reason("engine_down", "Redis does not answer: orders cannot be sent")
        return self.cluster.scheduler.why(task.id, now)

    def drain(self, is_paused: bool = True) -> int:
        """Stop (or go on) handing out work; how many tasks are still with workers."""
        self.cluster.scheduler.apply(Paused(is_paused))
        self.dispatching.kick()
        return sum(t.state is not State.QUEUED for t in self.cluster.tasks.values())
