"""The manager: the whole wiring, on one screen."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime

from corral.engine.base import Engine
from corral.manager.access import Access
from corral.manager.alerts import Alerts
from corral.manager.clock import Clock, new_id
from corral.manager.cluster.state import Cluster
from corral.manager.config import ManagerConfig
from corral.manager.context import ManagerContext
from corral.manager.counters import Counters
from corral.manager.events import Events
from corral.manager.feature import Loop
from corral.manager.gateway import Gateway
from corral.manager.insight import Insight
from corral.manager.insight.journal import scheduler_of
from corral.manager.insight.overview import ClusterOverview
from corral.manager.models import Models
from corral.manager.nodes import Nodes
from corral.manager.outbound import Outbound
from corral.manager.output import Output
from corral.manager.prometheus import MetricFamily
from corral.manager.queues import Queues
from corral.manager.signals import Signals
from corral.manager.tasks import Tasks
from corral.manager.tasks.explain import Explain
from corral.manager.tracing import Tracing
from corral.manager.upkeep import Upkeep
from corral.manager.workers import Workers
from corral.store.base import Store
from corral.store.objects import ObjectStore, in_memory


def make_context(
    store: Store,
    engine: Engine,
    config: ManagerConfig,
    clock: Clock | None = None,
    objects: ObjectStore | None = None,
) -> ManagerContext:
    """What features share; objects stay in memory where no place is named."""
    clock, signals, counters = clock or Clock(), Signals(), Counters()
    # They count and trace before anybody else acts on what they hear.
    signals.accepted.listen(counters.accept)
    signals.settled.listen(counters.settle)
    return ManagerContext(
        store=store,
        engine=engine,
        objects=objects or in_memory(),
        clock=clock,
        cluster=Cluster(scheduler_of(config.policy, config.journal_events)),
        signals=signals,
        counters=counters,
        tracing=Tracing(counters, signals, clock, config.traces),
        secret=config.cluster_secret,
    )


class Manager:
    """One leader. `start` before use, `stop` after."""

    def __init__(self, ctx: ManagerContext, config: ManagerConfig) -> None:
        self.ctx = ctx
        self.config = config
        self.access = Access(ctx, config.limits, config.is_open)
        self.insight = Insight(ctx, config.keep, config.sample_s)
        self.output = Output(ctx, config.artifact_limit_bytes)
        self.tasks = Tasks(
            ctx,
            self.access.secrets,
            self.output.artifacts,
            self.output.objects,
            config.tasks,
        )
        self.workers = Workers(ctx, self.tasks, config.scaling, config.worker_ports)
        self.gateway = Gateway(ctx, self.tasks, config.gateway)
        self.nodes = Nodes(ctx, self.tasks, self.workers, self.access, config.nodes)
        self.models = Models(
            ctx, self.tasks, self.output.objects, config.models, config.sources
        )
        self.queues = Queues(ctx, self.tasks, self.workers, self.access)
        self.alerts = Alerts(ctx, config.alerts, config.hooks)
        self.events = Events(ctx, self.access, config.live)
        self.outbound = Outbound(ctx, config.hooks, config.neighbour)
        self.upkeep = Upkeep(
            ctx, self.output.objects, self.tasks, self.workers, config.upkeep
        )
        self.explain = Explain(ctx, self.tasks.reads, self.workers.scaling)
        # As they build on each other; stopping goes the other way.
        self.features = (
            *(self.access, self.insight, self.output, self.tasks, self.workers),
            *(self.gateway, self.nodes, self.models, self.queues, self.alerts),
            *(self.events, self.outbound, self.upkeep),
        )
        self.started_at: datetime = ctx.clock.now()
        self.deposed = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Take the lead, load the live part of the store, start the loops."""
        ctx = self.ctx
        # First of all: from here on a former leader can change no task, so what is
        # loaded below stays true.
        ctx.cluster.lead(await ctx.store.take_lead(new_id("m"), ctx.clock.now()))
        for feature in self.features:
            await feature.load()
        # Only when all have loaded: a live task whose worker or node is not in memory
        # yet would be taken for homeless, and started a second time.
        for feature in self.features:
            await feature.open()
        # No loop before that: each may look at anything, and acts on what it misses.
        for feature in self.features:
            for loop in feature.loops():
                self._spawn(loop)
        self.tasks.dispatch.kick()

    def now(self) -> datetime:
        return self.ctx.clock.now()

    def server_id(self) -> str:
        """Which manager this is: another one after each change of leaders."""
        return f"{self.config.cluster_name}-{self.ctx.cluster.term}"

    async def overview(self) -> ClusterOverview:
        """The cluster in numbers."""
        health = self.alerts.watch.health().status
        return await self.insight.overview(self.started_at, health)

    def _spawn(self, loop: Loop) -> None:
        run = loop.run(self.ctx.clock.sleep, self.deposed.set)
        self._loops.append(asyncio.create_task(run))

    def release(self) -> None:
        """Answer every long poll now, so that the server can close."""
        for feature in self.features:
            feature.release()

    async def halt(self) -> None:
        """End all loops; nothing is closed yet."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)

    async def stop(self) -> None:
        # A loop must find nothing closed; and closing writes what is still gathered
        # (audit rows, learned figures), so the store is the last to go.
        await self.halt()
        for feature in reversed(self.features):
            await feature.close()
        await self.ctx.engine.close()
        await self.ctx.store.close()

    def gauges(self) -> Iterator[MetricFamily]:
        """Every figure of the moment, looked up in memory."""
        for feature in self.features:
            yield from feature.gauges()
