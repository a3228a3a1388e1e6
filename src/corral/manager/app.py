"""The manager: wires the verbs to one picture of the cluster and runs the loops."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime

from corral.core.tasks.task import State, Task
from corral.engine.base import Engine
from corral.errors import TaskNotFound
from corral.manager.access.derived_keys import webhook_secret
from corral.manager.access.keys import Access
from corral.manager.access.secrets import NamedSecrets
from corral.manager.access.sessions import Sessions
from corral.manager.alerts.alarm import Alerts
from corral.manager.alerts.snapshot import HealthSnapshot
from corral.manager.clock import Clock, new_id
from corral.manager.cluster.state import Cluster, NodeLink
from corral.manager.cluster.waiters import TaskFollowers
from corral.manager.config import ManagerConfig
from corral.manager.events.history import EventHistory
from corral.manager.events.live import LiveEvents
from corral.manager.feature import Loop
from corral.manager.gateway.apps import Gateway, OwnWorkers
from corral.manager.gateway.calls import AppCalls
from corral.manager.insight.charts import THIN_PERIOD_S, MetricCharts
from corral.manager.insight.journal import scheduler_of
from corral.manager.models.catalogue import Catalogue
from corral.manager.models.memory import ModelMemory
from corral.manager.models.placement import Prefetcher, Rebalancer
from corral.manager.nodes.holds import NodeHolds
from corral.manager.nodes.labels import NodeLabels
from corral.manager.nodes.leave import NodeLeave
from corral.manager.nodes.liveness import WATCH_S, NodeWatch
from corral.manager.nodes.master import STEP_S, Master
from corral.manager.nodes.readings import NodeReadings, Prune
from corral.manager.outbound.task_service import PERIOD_S, TaskService
from corral.manager.outbound.task_webhooks import TaskWebhooks
from corral.manager.outbound.webhook import NotifyConfig
from corral.manager.output.artifacts import Artifacts
from corral.manager.output.exec import Execs
from corral.manager.output.logs import TaskLogs
from corral.manager.output.stream import SWEEP_S, TaskOutput
from corral.manager.queues.job_types import JobTypes
from corral.manager.queues.schedules import Schedules
from corral.manager.queues.shares import ClusterShares
from corral.manager.tasks.cancel import cancel, drop
from corral.manager.tasks.dispatch import Dispatch
from corral.manager.tasks.explain import ENGINE_DOWN
from corral.manager.tasks.gangs import Gangs
from corral.manager.tasks.learned import LearnedFigures
from corral.manager.tasks.report import TaskReports
from corral.manager.tasks.requeue import Requeue
from corral.manager.tasks.result_cache import ResultCache
from corral.manager.tasks.settle import Settle
from corral.manager.tasks.submit import Submit
from corral.manager.tracing import Tracing
from corral.manager.upkeep.clear import Clear
from corral.manager.upkeep.objects import ObjectCleanup
from corral.manager.upkeep.rescue import Rescue
from corral.manager.workers.lifecycle import WorkerRestarts, WorkerStops
from corral.manager.workers.registry import Registry
from corral.manager.workers.scaling import Autoscaler
from corral.manager.workers.types import WorkerTypeRegistry
from corral.scheduler.events import Paused
from corral.scheduler.plan import Reason
from corral.store.base import Store
from corral.store.objects import ObjectStore, in_memory

# What a manager takes up from the store when it begins to lead.

log = logging.getLogger(__name__)


async def load(boss: Manager) -> None:
    """Let memory have the live part of the store."""
    cluster, store, now = boss.cluster, boss.store, boss.clock.monotonic()
    for job_type in await store.job_types():
        cluster.set_job_type(job_type)
    await boss.gateway.load()
    cluster.worker_types = {t.name: t for t in await store.worker_types()}
    for node in await store.nodes():
        # Every lease gets a fresh grace: silence was ours, not theirs.
        # The former self's versions must not come again for another wish.
        version = cluster.term << 20
        cluster.nodes[node.id] = NodeLink(node, now, desired_version=version)
    for worker in await store.workers():
        cluster.add_worker(worker)
    await boss.sharing.load()
    live = await store.live_tasks()
    cluster.tasks = {t.id: t for t in live}
    homeless = [task for task in live if not boss.rescue.take_over(task)]
    # Before anything is planned: what was held stays so.
    boss.holding.load()
    await boss.models.load()
    await boss.catalogue.load()
    await boss.caching.load()
    await boss.learning.load()
    await boss.dispatching.give_up(homeless)
    await boss.rescue.resolve()
    log.info("loaded %d live tasks, term %d", len(live), cluster.term)


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
        bells = TaskFollowers()
        self.clock = clock or Clock()
        self.live = LiveEvents(config.live, self.clock)
        self.store = store = self.live.around(store, bells)
        self.objects = objects or in_memory()
        self.engine = engine
        self.config = config
        scheduler = scheduler_of(config.policy, config.journal_events)
        self.cluster = Cluster(scheduler, bells=bells)
        self.tracing = Tracing(self.cluster, self.clock, config.traces)
        self.access = Access(store, self.clock, config.limits, config.is_open)
        secret = config.cluster_secret
        self.sessions = Sessions(self.access, self.clock, secret)
        self.live.attach(self.cluster, self.access)
        self.settling = Settle(self.cluster, store, self.clock, config.retry)
        self.dispatching = Dispatch(
            self.cluster, store, engine, self.settling, self.clock, secret
        )
        self.gangs = Gangs(self.cluster, self.settling, engine, self.dispatching)
        self.vault = NamedSecrets(self.cluster, store, self.clock, secret)
        limit_bytes = config.result_cache_bytes
        self.caching = ResultCache(self.cluster, store, self.clock, limit_bytes)
        self.settling.on_result = self.caching.keep
        self.submitting = Submit(
            self.cluster,
            store,
            self.dispatching,
            self.settling,
            self.clock,
            self.vault,
            self.caching,
        )
        self.reporting = TaskReports(
            self.cluster, store, self.settling, self.dispatching, self.clock
        )
        self.execs = Execs(self.cluster, store, engine, self.clock)
        self.registry = Registry(
            self.cluster, store, self.settling, self.dispatching, self.clock
        )
        self._add_keeping(bells)
        self._add_workers()
        self._add_gateway()
        self._add_loops()
        self.started_at: datetime = self.clock.now()
        self.deposed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def _add_keeping(self, bells: TaskFollowers) -> None:
        self.keeping = Artifacts(
            self.cluster,
            self.store,
            self.objects,
            self.clock,
            self.config.artifact_limit_bytes,
        )
        self.requeue = Requeue(
            self.cluster,
            self.store,
            self.settling,
            self.dispatching,
            self.keeping,
            self.clock,
        ).requeue
        self.following = TaskLogs(self.store, bells, self.cluster.progress)
        self.streaming = TaskOutput(
            self.store,
            bells,
            self.cluster.streams,
            self.cluster.is_live,
            self.clock,
            self.cancel,
        )
        self.feed = EventHistory(self.store, bells)

    def _add_workers(self) -> None:
        self.worker_types = WorkerTypeRegistry(
            self.cluster,
            self.store,
            self.registry,
            self.clock,
            self.objects,
            self.config.worker_ports,
        )
        self.stopping = WorkerStops(self.cluster, self.registry, self.worker_types)
        self.restarting = WorkerRestarts(
            self.cluster, self.store, self.registry, self.dispatching
        )
        parts = (self.cluster, self.store, self.registry, self.dispatching, self.clock)
        self.holding, self.marking = NodeHolds(*parts), NodeLabels(*parts)
        self.autoscaling = Autoscaler(*parts, self.worker_types, self.config.scaling)
        self.sharing = ClusterShares(self.cluster, self.store, self.dispatching)
        self.learning = LearnedFigures(self.cluster, self.store, self.clock)
        self.models = ModelMemory(
            self.cluster,
            self.store,
            self.registry,
            self.submitting,
            self.dispatching,
            self.clock,
            self.config.models,
            self.cancel,
        )
        self.catalogue = Catalogue(
            self.cluster,
            self.store,
            self.objects,
            self.models,
            self.clock,
            self.config.sources,
        )
        self.submitting.check_model = self.catalogue.check
        self.caching.models = lambda: self.catalogue.entries
        self.rebalancing = Rebalancer(self.cluster, self.store, self.models, self.clock)
        self.prefetching = Prefetcher(self.cluster, self.models, self.clock)
        self.leaving = NodeLeave(
            self.cluster,
            self.store,
            self.registry,
            self.access,
            self.clock,
            self.config.stale_node_after_s,
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
            self.caching,
        )
        self.calling = AppCalls(
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
        self.master = Master(
            self.cluster,
            self.store,
            self.clock,
            self.config.master,
            self.config.sample_s,
        )
        self.node_watch = NodeWatch(
            self.cluster,
            self.store,
            self.registry,
            self.settling,
            self.dispatching,
            self.clock,
            self.config.liveness,
        )
        self.clearing = Clear(
            self.cluster,
            self.store,
            self.settling,
            self.registry,
            self.rescue,
            self.clock,
            self.drop,
        )
        keep, sample_s = self.config.keep, self.config.sample_s
        self.monitor = NodeReadings(
            self.cluster, self.store, self.access, self.clock, sample_s
        )
        self.history = MetricCharts(self.store, self.clock, keep, sample_s)
        self.prune = Prune(self.store, self.clock, keep)
        self.garbage = ObjectCleanup(
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
        hooks = NotifyConfig(secret, self.config.gateway)
        self.notifying = TaskWebhooks(self.cluster, self.store, self.clock, hooks)
        picture = HealthSnapshot(
            self.cluster,
            self.clock,
            lambda: self.node_watch.is_holding,
            lambda: self.dispatching.is_engine_up,
        )
        self.alarm = Alerts(self.store, self.clock, picture, self.config.alerts, hooks)
        self.neighbour: TaskService | None = None
        if self.config.neighbour is not None:
            self.neighbour = TaskService(
                self.cluster, self.store, self.clock, self.config.neighbour
            )

    async def start(self) -> None:
        """Take the lead, load the live part of the store, start the loops."""
        now = self.clock.now()
        self.cluster.term = await self.store.take_lead(new_id("m"), now)
        await self.access.load()
        await self.vault.load()
        await load(self)
        self._spawn(Loop("scheduling", 0.1, self.dispatching.run, self.deposed.set))
        deposed = self.deposed.set
        self._spawn(Loop("rescue", 1.0, self.rescue.step, deposed))
        self._spawn(Loop("nodes", WATCH_S, self.node_watch.step, deposed))
        self._spawn(Loop("master", STEP_S, self.master.step, deposed))
        for part in (
            *(self.holding, self.leaving, self.sharing, self.learning, self.models),
            *(self.autoscaling, self.rebalancing, self.prefetching, self.caching),
        ):
            self._spawn(part.loop(deposed))
        for several in (self.catalogue, self.live, self.tracing):
            for loop in several.loops(deposed):
                self._spawn(loop)
        self._spawn(Loop("monitor", 1.0, self.monitor.step, deposed))
        self._spawn(Loop("streams", SWEEP_S, self.streaming.step, deposed))
        self._spawn(Loop("thin", THIN_PERIOD_S, self.history.step, deposed))
        self._spawn(Loop("prune", 600.0, self.prune.step, deposed))
        self._spawn(Loop("garbage", 60.0, self.garbage.step, deposed))
        await self.schedules.load()
        self._spawn(Loop("schedules", 1.0, self.schedules.step, deposed))
        await self.notifying.open()
        self._spawn(Loop("notifying", 0.1, self.notifying.step, deposed))
        for loop in await self.alarm.open(deposed):
            self._spawn(loop)
        if self.neighbour is not None:
            await self.neighbour.open()
            self._spawn(Loop("neighbour", PERIOD_S, self.neighbour.step, deposed))
        self.dispatching.kick()

    def _spawn(self, loop: Loop) -> None:
        self._tasks.append(asyncio.create_task(loop.run(self.clock.sleep)))

    def hush(self) -> None:
        """Answer every long poll now, so that the server can close."""
        self.cluster.waiters.release()
        self.cluster.bells.release()
        self.live.broadcast.release()
        self.execs.hush()
        for link in self.cluster.nodes.values():
            link.touch_desired()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.calling.stop()
        await self.catalogue.close()
        await self.gateway.close()
        await self.notifying.close()
        await self.alarm.close()
        if self.neighbour is not None:
            await self.neighbour.close()
        for part in (self.tracing, self.learning, self.caching):
            await part.close()
        await self.access.flush_audit()
        await self.engine.close()
        await self.store.close()

    async def cancel(self, task_id: str) -> None:
        """Cancel a live task; a running one is killed on its worker.

        Raises:
            TaskNotFound, Conflict: unknown, or it had ended already.
        """
        await cancel(self, task_id)

    async def drop(self, task: Task) -> None:
        """Tell the worker that has it, if one has, to stop."""
        await drop(self, task)

    async def stored(self, task_id: str) -> Task:
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
            return ENGINE_DOWN
        return self.autoscaling.reword(self.cluster.scheduler.why(task.id, now))

    def drain(self, is_paused: bool = True) -> int:
        """Stop (or go on) handing out work; how many tasks are still with workers."""
        self.cluster.scheduler.apply(Paused(is_paused))
        self.dispatching.kick()
        return sum(t.state is not State.QUEUED for t in self.cluster.tasks.values())
