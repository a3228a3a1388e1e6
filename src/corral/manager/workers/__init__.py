"""Workers: who is there, who starts, stops and moves, and how many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from corral.core.nodes.gpu import Gpu
from corral.core.nodes.node import NodeState
from corral.core.nodes.worker import WorkerSpec, WorkerState
from corral.errors import Conflict
from corral.manager.cluster import gpus
from corral.manager.cluster.held_models import ReportedModels
from corral.manager.cluster.state import NodeLink, WorkerLink
from corral.manager.context import ManagerContext
from corral.manager.feature import Feature, Loop
from corral.manager.prometheus import Gauge, Labels, MetricFamily
from corral.manager.tasks import Tasks
from corral.manager.tasks.report import ReportedWork
from corral.manager.workers.lifecycle import (
    WorkerRestarts,
    WorkerStops,
    can_take,
    emptiest,
)
from corral.manager.workers.registry import WorkerRegistry
from corral.manager.workers.scaling import Autoscaler, ScalingConfig
from corral.manager.workers.types import WorkerTypeRegistry
from corral.store.base import RegistryStore
from corral.wire.orders import ReportAnswer, WorkerReport


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """A worker, its node, the cards it has for itself, and how fast it is: 1 is usual,
    as so many runs say.
    """

    link: WorkerLink
    node: NodeLink | None
    cards: Sequence[Gpu]
    speed: float
    speed_runs: int


class Workers(Feature):
    def __init__(
        self,
        ctx: ManagerContext,
        tasks: Tasks,
        scaling: ScalingConfig,
        ports: tuple[int, ...],
    ) -> None:
        self._cluster = ctx.cluster
        self._store: RegistryStore = ctx.store.registry
        self._signals = ctx.signals
        self._reports = tasks.reports
        self.registry = WorkerRegistry(ctx, tasks.settle, tasks.dispatch)
        self.types = WorkerTypeRegistry(ctx, self.registry, ports)
        self.stops = WorkerStops(ctx, self.registry, self.types)
        self.scaling = Autoscaler(
            ctx, self.registry, tasks.dispatch, self.types, scaling
        )
        restarts = WorkerRestarts(ctx, self.registry, tasks.dispatch)
        self.restart = restarts.restart

    async def load(self) -> None:
        kinds = await self._store.worker_types()
        self._cluster.worker_types.update((kind.name, kind) for kind in kinds)
        for worker in await self._store.workers():
            self._cluster.add_worker(worker)

    def loops(self) -> Sequence[Loop]:
        return (self.scaling.loop(),)

    # verbs ---------------------------------------------------------------------
    def get(self, worker_id: str) -> WorkerLink:
        """Raises WorkerNotFound."""
        return self._cluster.worker(worker_id)

    def all(self) -> Sequence[WorkerLink]:
        return list(self._cluster.workers.values())

    def find(self, worker_id: str) -> WorkerLink | None:
        return self._cluster.workers.get(worker_id)

    def of_node(self, node_id: str) -> Sequence[WorkerLink]:
        return self._cluster.of_node(node_id)

    def figures(self, link: WorkerLink) -> WorkerFigures:
        node = self._cluster.nodes.get(link.worker.node_id)
        cards = gpus.of_worker(self._cluster, link)
        speed, runs = self._cluster.scheduler.speed(link.id)
        return WorkerFigures(link, node, cards, speed, runs)

    async def launch(
        self, specs: Sequence[WorkerSpec], node_id: str | None
    ) -> list[WorkerLink]:
        """Want these workers on a node; without one, on the emptiest.

        Raises:
            NodeNotFound, Conflict: unknown, held, or it has one of that name.
        """
        node_id = node_id or self.emptiest_node().node.id
        return await self.registry.launch_all(node_id, specs)

    def emptiest_node(self) -> NodeLink:
        """The node a worker should be started on that nobody gave one.

        Raises:
            Conflict: none can take it.
        """
        nodes = self._cluster.nodes.values()
        best = emptiest(self._cluster, [n for n in nodes if can_take(n)])
        if best is not None:
            return best
        if held := [n for n in nodes if n.node.state is NodeState.ONLINE and n.holds]:
            held[0].check_open()
        raise Conflict("no node is online; join one with 'corral join'")

    async def report(self, worker_id: str, report: WorkerReport) -> ReportAnswer:
        """Carry out a worker's report once; a repeated one gets the same answer.

        Raises:
            Conflict: another incarnation of it is the current one.
            InvalidField: what cannot be read of it.
        """
        link = self._cluster.worker(worker_id)
        lead_s = self._cluster.node(link.worker.node_id).clock.correction_s
        # All of it is read before any of it counts.
        work, models = ReportedWork.of(report, lead_s), None
        if report.models:
            models = ReportedModels.of(report.models, lead_s)
        if report.incarnation == link.worker.incarnation:
            if report.state:
                self.registry.set_serving(link, report.state, report.error or None)
            if models is not None:
                # Before its outcomes: what an order left in memory is known when it
                # closes.
                self._signals.models_reported.tell(link, models)
        return await self._reports.report(link, report, work)

    # figures -------------------------------------------------------------------
    def gauges(self) -> Iterator[MetricFamily]:
        states = Counter(str(link.worker.state) for link in self.all())
        rows: dict[Labels, float | None] = {(str(s),): states[s] for s in WorkerState}
        yield Gauge("corral_workers", "Workers, by their state.", rows, ("status",))
