"""Nodes: joining, heartbeats, holds, labels, and leaving."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from corral.core.nodes.gpu import Gpu, GpuHealth, is_called
from corral.core.nodes.node import NodeState, Sample
from corral.errors import Conflict, NotFound
from corral.manager.access import Access
from corral.manager.cluster.state import NodeLink, WorkerLink
from corral.manager.context import ManagerContext
from corral.manager.feature import Feature, Loop
from corral.manager.nodes.engine_access import NodeEngine
from corral.manager.nodes.heartbeat import Heartbeats
from corral.manager.nodes.holds import NodeHolds
from corral.manager.nodes.join import NodeJoin
from corral.manager.nodes.labels import NodeLabels
from corral.manager.nodes.liveness import WATCH_S, Liveness, NodeWatch
from corral.manager.nodes.master import STEP_S, Master, MasterConfig
from corral.manager.nodes.registry import NodeRegistry
from corral.manager.nodes.removal import NodeLeave
from corral.manager.nodes.save_heartbeats import NodeReadings
from corral.manager.prometheus import Gauge, Labels, MetricFamily
from corral.manager.tasks import Tasks
from corral.manager.workers import Workers
from corral.store.base import RegistryStore

_MB = 1 << 20
_GB = 1 << 30
_NODE = ("node", "name")
_CARD = (*_NODE, "gpu", "model")
_OF_NODE: tuple[tuple[str, str, Callable[[Sample], float]], ...] = (
    ("cpu_ratio", "Use of a node's processors.", lambda s: s.cpu_percent / 100),
    (
        "memory_used_bytes",
        "Memory of a node in use.",
        lambda s: s.memory_used_mb * _MB,
    ),
    ("memory_bytes", "Memory of a node.", lambda s: s.memory_total_mb * _MB),
    ("disk_used_bytes", "Disk of a node in use.", lambda s: s.disk_used_gb * _GB),
    ("disk_bytes", "Disk of a node.", lambda s: s.disk_total_gb * _GB),
)
_OF_CARD: tuple[tuple[str, str, Callable[[Gpu], float | None]], ...] = (
    (
        "memory_used_bytes",
        "Memory of a card in use by anybody.",
        lambda c: _times(c.memory_used_mb, _MB),
    ),
    ("memory_bytes", "Memory of a card.", lambda c: _times(c.memory_total_mb, _MB)),
    (
        "utilization_ratio",
        "Use of a card.",
        lambda c: _times(c.utilization_percent, 0.01),
    ),
    ("temperature_celsius", "Temperature of a card.", lambda c: c.temperature_c),
    ("power_watts", "What a card draws.", lambda c: c.power_w),
    (
        "healthy",
        "1 while a card can be read and is not in quarantine.",
        lambda c: float(c.error is None and c.health is GpuHealth.OK),
    ),
)


@dataclass(frozen=True, slots=True)
class NodesConfig:
    """A reading is kept every `sample_s`; a node that is lost longer is forgotten."""

    liveness: Liveness = field(default_factory=Liveness)
    sample_s: float = 30.0
    stale_after_s: float = 7 * 86400.0
    master: MasterConfig | None = None


class Nodes(Feature):
    def __init__(
        self,
        ctx: ManagerContext,
        tasks: Tasks,
        workers: Workers,
        access: Access,
        config: NodesConfig,
    ) -> None:
        self._cluster = ctx.cluster
        self._store: RegistryStore = ctx.store.registry
        self._clock = ctx.clock
        self._workers = workers
        registry, dispatch = workers.registry, tasks.dispatch
        self.registry = NodeRegistry(ctx, registry)
        self.heartbeats = Heartbeats(ctx, self.registry, dispatch)
        self.holds = NodeHolds(ctx, registry, dispatch)
        self.labels = NodeLabels(ctx, dispatch)
        self.leave = NodeLeave(ctx, registry, access.keys, config.stale_after_s)
        self.watch = NodeWatch(ctx, registry, tasks, config.liveness)
        self.master = Master(ctx, config.master, config.sample_s)
        self.join = NodeJoin(
            ctx, self.registry, self.heartbeats, self.master, access.keys
        )
        self.engine = NodeEngine(ctx, access.keys)
        self.readings = NodeReadings(ctx, config.sample_s)

    async def load(self) -> None:
        now = self._clock.monotonic()
        for node in await self._store.nodes():
            # Every lease gets a fresh grace: silence was ours, not theirs.
            # The former self's versions must not come again for another wish.
            version = self._cluster.term << 20
            link = NodeLink(node, now, desired_version=version)
            self._cluster.nodes[node.id] = link

    async def open(self) -> None:
        # Before anything is planned: what was held stays so.
        self.holds.load()

    def loops(self) -> Sequence[Loop]:
        return (
            Loop("nodes", WATCH_S, self.watch.step),
            Loop("master", STEP_S, self.master.step),
            self.holds.loop(),
            self.leave.loop(),
            self.engine.loop(),
            Loop("readings", 1.0, self.readings.step),
        )

    def release(self) -> None:
        for link in self._cluster.nodes.values():
            link.changed.close()

    # verbs ---------------------------------------------------------------------
    def get(self, node_id: str) -> NodeLink:
        """Raises NodeNotFound."""
        return self._cluster.node(node_id)

    def all(self) -> Sequence[NodeLink]:
        return list(self._cluster.nodes.values())

    def workers_of(self, link: NodeLink) -> Sequence[WorkerLink]:
        return self._cluster.of_node(link.node.id)

    def release_gpu(self, node_id: str, name: str) -> Gpu:
        """Lift the quarantine of a card: its node is told, and has it done.

        Raises:
            NotFound: the node has no such card.
            Conflict: it is not in quarantine.
        """
        link = self._cluster.node(node_id)
        word = name.removeprefix("gpu:")
        card = next((gpu for gpu in link.gpus or () if is_called(gpu, word)), None)
        if card is None:
            raise NotFound(f"node {link.node.id} has no GPU {name!r}", gpu_id=name)
        if card.quarantine is None:
            raise Conflict(f"GPU {card.id} is not in quarantine", gpu_id=card.id)
        link.gpu_releases[card.id] = card.quarantine.since
        link.touch_desired()
        return card

    async def reset_breakers(
        self, node_id: str, key: str | None = None
    ) -> dict[str, list[str]]:
        """Have the workers that wait for a breaker started at once, which closes it.

        The wish is each worker's generation, kept in the store, so that an agent that
        is away hears of it when it is back.

        Returns:
            By key, the workers that waited for it.
        """
        self._cluster.node(node_id)
        waiting: dict[str, list[str]] = {}
        for link in self._cluster.of_node(node_id):
            if link.breaker is not None and key in (None, link.breaker):
                waiting.setdefault(link.breaker, []).append(link.id)
        if key is not None and not waiting:
            raise NotFound(f"no worker of node {node_id} waits for a breaker {key!r}")
        for worker_ids in waiting.values():
            for worker_id in worker_ids:
                await self._workers.restart(worker_id)
        return waiting

    # figures -------------------------------------------------------------------
    def gauges(self) -> Iterator[MetricFamily]:
        links = [n for n in self._cluster.nodes.values() if _is_here(n)]
        states = Counter(str(link.node.state) for link in links)
        shown = (state for state in NodeState if state != NodeState.LEFT)
        rows: dict[Labels, float | None] = {(str(s),): states[s] for s in shown}
        yield Gauge("corral_nodes", "Nodes, by their state.", rows, ("status",))
        now = self._clock.monotonic()
        yield Gauge(
            "corral_node_heartbeat_age_seconds",
            "Since when a node was last heard.",
            {_names(n): max(0.0, now - n.seen) for n in links if not n.is_own},
            _NODE,
        )
        for name, text, figure in _OF_NODE:
            heard = {_names(n): figure(n.sample) for n in links if n.sample is not None}
            yield Gauge(f"corral_node_{name}", text, heard, _NODE)
        yield self._tasks_of_nodes()
        yield from _cards(links)

    def _tasks_of_nodes(self) -> MetricFamily:
        busy: dict[Labels, float | None] = {
            _names(node): sum(
                float(len(order.left))
                for worker in self._cluster.of_node(node.node.id)
                for order in worker.orders.values()
            )
            for node in self._cluster.nodes.values()
        }
        text = "Tasks that the workers of a node have."
        return Gauge("corral_node_tasks", text, busy, _NODE)


def _is_here(link: NodeLink) -> bool:
    return link.node.state is not NodeState.LEFT


def _names(link: NodeLink) -> Labels:
    return (link.node.id, link.node.hostname)


def _cards(links: Sequence[NodeLink]) -> Iterator[MetricFamily]:
    cards = [
        ((*_names(link), str(card.index), card.name), card)
        for link in links
        for card in link.gpus or ()
    ]
    for name, text, figure in _OF_CARD:
        rows = {labels: figure(card) for labels, card in cards}
        yield Gauge(f"corral_gpu_{name}", text, rows, _CARD)


def _times(figure: float | None, unit: float) -> float | None:
    return None if figure is None else figure * unit
