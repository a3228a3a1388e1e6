"""Keeps as many workers of each type as demand asks for, within its limits.

`scheduler/scaling/scaler.py` decides, from the cluster as it is shown here; then
workers are launched as anybody launches them, and those to go get nothing new, finish
what they run, and are stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any

from corral.core.nodes.gpu_choice import is_free, read_wish
from corral.core.nodes.node import NodeState
from corral.core.nodes.worker import WorkerState
from corral.core.nodes.worker_type import WorkerType
from corral.errors import CorralError, NotLeader
from corral.manager.cluster.gpus import bound_ids
from corral.manager.cluster.state import Cluster, NodeLink, WorkerLink
from corral.manager.context import ManagerContext
from corral.manager.feature import Loop
from corral.manager.tasks.dispatch import Dispatch
from corral.manager.workers.lifecycle import can_take
from corral.manager.workers.registry import WorkerRegistry
from corral.manager.workers.types import WorkerTypeRegistry
from corral.scheduler.events import WorkerGone
from corral.scheduler.plan import Reason
from corral.scheduler.scaling.scaler import Scaler
from corral.scheduler.scaling.values import (
    LaunchDecision,
    NodeRoom,
    RetireDecision,
    ScaledType,
    ScaledWorker,
    ScaledWorkerState,
    ScalingInput,
    ScalingPolicy,
    TypeNow,
)
from corral.store.base import Event
from corral.wire.workers import Scaled

log = logging.getLogger(__name__)
_GONE = (NodeState.LOST, NodeState.LEFT)
_PERIOD_S = 0.5
UP, DOWN = "cluster_scaled_up", "cluster_scaled_down"
STARTING = "worker_starting"
"""The reason of tasks that wait for a worker that is on its way."""


@dataclass(frozen=True, slots=True)
class ScalingConfig:
    """`node_workers` is how many one node may have; 0: as many as it has cores."""

    is_enabled: bool = False
    policy: ScalingPolicy = field(default_factory=ScalingPolicy)
    node_workers: int = 0


@dataclass(frozen=True, slots=True)
class ScaledTypeStatus:
    """A type with limits, how it stood at the last look, and what was done last."""

    kind: WorkerType
    now: TypeNow
    leaving: int = 0
    last: Scaled | None = None


class Autoscaler:
    def __init__(
        self,
        ctx: ManagerContext,
        workers: WorkerRegistry,
        dispatch: Dispatch,
        worker_types: WorkerTypeRegistry,
        config: ScalingConfig,
    ) -> None:
        self._cluster = ctx.cluster
        self._workers = workers
        self._dispatch = dispatch
        self._clock = ctx.clock
        self._record = ctx.record
        self._worker_types = worker_types
        self.config = config
        self._scaler = Scaler(config.policy)
        self._leaving: dict[str, RetireDecision] = {}
        self._now: dict[str, TypeNow] = {}
        self._last: dict[str, Scaled] = {}
        self._stepping = asyncio.Lock()

    def all(self) -> list[ScaledTypeStatus]:
        """Every type with limits, by name."""
        names = [retire.type_name for retire in self._leaving.values()]
        return [
            ScaledTypeStatus(
                kind,
                self._now.get(kind.name) or self._unseen(kind),
                names.count(kind.name),
                self._last.get(kind.name),
            )
            for kind in sorted(scaled_types(self._cluster), key=lambda k: k.name)
        ]

    def _unseen(self, kind: WorkerType) -> TypeNow:
        """A type that was not looked at: autoscaling is off, or it came just now."""
        found = [standing(self._cluster, w, ()) for w in self._workers_of(kind)]
        serving, starting = ScaledWorkerState.SERVING, ScaledWorkerState.STARTING
        return TypeNow(
            kind.name,
            len(found) - found.count(ScaledWorkerState.OUT),
            found.count(serving),
            found.count(starting),
            self._cluster.scheduler.waiting_by_type()[kind.job_type or ""],
            0.0,
        )

    def _workers_of(self, kind: WorkerType) -> list[WorkerLink]:
        workers = self._cluster.workers.values()
        return [w for w in workers if w.worker.spec.worker_type == kind.name]

    # the loop ----------------------------------------------------------------
    def loop(self) -> Loop:
        return Loop("scaling", _PERIOD_S, self.step)

    async def step(self) -> None:
        """Look at every type with limits, and do what demand asks for."""
        async with self._stepping:
            if self.config.is_enabled:
                await self._decide()
            await self._finish()

    async def _decide(self) -> None:
        if not scaled_types(self._cluster):
            self._now = {}
            return
        scene = scene_of(
            self._cluster,
            self._leaving,
            self.config.node_workers,
            self._clock.monotonic(),
            self._clock.now().timestamp(),
        )
        found = self._scaler.decide(scene)
        self._now = {now.name: now for now in found.types}
        # Before anything is awaited: what was idle in the scene still is.
        for retire in found.retires:
            self._leaving[retire.worker_id] = retire
            self._hold_back(self._cluster.workers[retire.worker_id])
        for launch in found.launches:
            await self._launch(launch)

    async def _launch(self, launch: LaunchDecision) -> None:
        try:
            link = await self._worker_types.start(launch.node_id, launch.type_name)
        except NotLeader:
            raise
        except CorralError as e:
            log.warning("cannot launch a %s: %s", launch.type_name, e.message)
            self._scaler.failed(launch, self._clock.monotonic(), e.message)
            return
        await self._tell(UP, launch.type_name, link, launch.reason)

    # workers that go ---------------------------------------------------------
    async def _finish(self) -> None:
        """Stop those that have finished."""
        for worker_id, retire in list(self._leaving.items()):
            link = self._cluster.workers.get(worker_id)
            if link is None:
                del self._leaving[worker_id]
            elif self._hold_back(link) and not link.orders:
                await self._workers.stop(worker_id)
                del self._leaving[worker_id]
                await self._tell(DOWN, retire.type_name, link, retire.reason)

    def _hold_back(self, link: WorkerLink) -> bool:
        """Let a worker get nothing new; false while an order is on its way to it."""
        scheduler = self._cluster.scheduler
        if scheduler.open_orders(link.id) > len(link.orders):
            return False
        link.is_leaving = True
        if scheduler.serves(link.id):
            scheduler.apply(WorkerGone(link.id))
            self._dispatch.kick()
        return True

    async def _tell(self, event: str, name: str, link: WorkerLink, why: str) -> None:
        worker, now = link.worker, self._clock.now()
        self._last[name] = Scaled(
            at=now,
            event=event,
            worker_id=link.id,
            node_id=worker.node_id,
            reason=why,
        )
        verb = "starts" if event == UP else "stops"
        title = f"worker {link.id} of type {name} {verb}: {why}"
        data: dict[str, Any] = {
            "worker_type": name,
            "worker_id": link.id,
            "reason": why,
        }
        log.info(title)
        row = Event(event, title, "info", worker.node_id, data=data, at=now)
        await self._record([row])

    # what tasks are told -----------------------------------------------------
    def reword(self, reason: Reason | None) -> Reason | None:
        """Say of a task without a worker whether one is on its way."""
        if reason is None or reason.reason != "no_worker" or not self.config.is_enabled:
            return reason
        job_type = reason.details.get("job_type")
        kinds = [k for k in scaled_types(self._cluster) if k.job_type == job_type]
        if not kinds:
            return reason
        found = [w for k in kinds for w in self._workers_of(k)]
        names = sorted(
            w.id
            for w in found
            if standing(self._cluster, w, self._leaving) is ScaledWorkerState.STARTING
        )
        blocked = [self._now[k.name].blocked for k in kinds if k.name in self._now]
        if not names and any(blocked):
            words = f"no worker serves '{job_type}' and none can be started: "
            return Reason(reason.reason, words + "; ".join(blocked), reason.details)
        words = f"a worker for '{job_type}' is being started"
        return Reason(STARTING, words, {"job_type": job_type, "workers": names})


def scaled_types(cluster: Cluster) -> list[WorkerType]:
    """Those that demand may change the number of workers of."""
    return [t for t in cluster.worker_types.values() if t.max_workers is not None]


def scene_of(
    cluster: Cluster,
    leaving: Container[str],
    node_workers: int,
    now: float,
    epoch_s: float,
) -> ScalingInput:
    """What there is at this moment; `node_workers` of 0 is one for each core."""
    kinds = tuple(_scaled(kind) for kind in scaled_types(cluster))
    names = {kind.name for kind in kinds}
    mine = [w for w in cluster.workers.values() if w.worker.spec.worker_type in names]
    kept = cluster.scheduler.kept() if mine else frozenset()
    standings = {w.id: standing(cluster, w, leaving) for w in cluster.workers.values()}
    return ScalingInput(
        now,
        kinds,
        tuple(_worker(cluster, w, standings[w.id], w.id in kept) for w in mine),
        tuple(_room(cluster, n, node_workers) for n in cluster.nodes.values()),
        cluster.scheduler.demands(epoch_s),
        sum(found is not ScaledWorkerState.OUT for found in standings.values()),
    )


def standing(
    cluster: Cluster, link: WorkerLink, leaving: Container[str]
) -> ScaledWorkerState:
    worker = link.worker
    node = cluster.nodes.get(worker.node_id)
    if link.id in leaving:
        return ScaledWorkerState.LEAVING
    if node is None or node.node.state in _GONE or node.holds or link.is_parked:
        return ScaledWorkerState.OUT
    if worker.state is WorkerState.ERROR:
        return ScaledWorkerState.BROKEN
    # One that served before the manager started is on its way until it is heard of.
    is_serving = cluster.scheduler.serves(link.id)
    return ScaledWorkerState.SERVING if is_serving else ScaledWorkerState.STARTING


def _scaled(kind: WorkerType) -> ScaledType:
    return ScaledType(
        kind.name,
        frozenset((kind.job_type,) if kind.job_type else ()),
        kind.min_workers,
        kind.max_workers or 0,
        read_wish(kind.gpus).count,
    )


def _worker(
    cluster: Cluster, link: WorkerLink, found: ScaledWorkerState, is_kept: bool
) -> ScaledWorker:
    return ScaledWorker(
        link.id,
        link.worker.spec.worker_type or "",
        link.worker.node_id,
        found,
        is_busy=bool(link.orders or cluster.scheduler.open_orders(link.id)),
        is_kept=is_kept,
        models=len(link.shelf.held),
        ran=link.ran + link.failed,
        error=link.worker.error or "it did not say why",
    )


def _room(cluster: Cluster, link: NodeLink, node_workers: int) -> NodeRoom:
    node, workers = link.node, cluster.of_node(link.node.id)
    plain = sum(not read_wish(w.worker.spec.gpus) for w in workers)
    left = node_workers - len(workers)
    room = NodeRoom(
        node.id,
        cards=_free_cards(cluster, link, workers),
        seats=left if node_workers else _cores(link) - plain,
        workers=len(workers),
        is_open=can_take(link),
        labels=node.all_labels,
        taints=node.all_taints,
    )
    return room.limited(left) if node_workers else room


def _free_cards(cluster: Cluster, link: NodeLink, workers: Sequence[WorkerLink]) -> int:
    """Cards nobody has, less those that workers on their way will be given."""
    bound = {gpu_id for w in workers for gpu_id in bound_ids(w.facts)}
    leases = cluster.scheduler.leases().values()
    bound |= {card for lease in leases for card in lease.cards}
    free = sum(is_free(gpu) and gpu.id not in bound for gpu in link.gpus or ())
    wished = (w for w in workers if not bound_ids(w.facts))
    return free - sum(read_wish(w.worker.spec.gpus).count for w in wished)


def _cores(link: NodeLink) -> int:
    if link.sample is not None:
        return link.sample.cpu_count
    told = link.node.capabilities.get("cpu_count")
    return told if isinstance(told, int) else 1
