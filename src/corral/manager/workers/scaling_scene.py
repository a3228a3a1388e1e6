"""The cluster as autoscaling sees it: which workers a type has, which nodes have room.

Only looks; what follows from it is decided by `scheduler/scaling/scaler.py`.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from corral.core.nodes.gpu_bind import is_free, read_wish
from corral.core.nodes.node import NodeState
from corral.core.nodes.worker import WorkerState
from corral.core.nodes.worker_type import WorkerType
from corral.manager.cluster.gpus import bound_ids
from corral.manager.cluster.state import Cluster, NodeLink, WorkerLink
from corral.manager.workers.moving import can_take
from corral.scheduler.scaling.values import (
    NodeRoom,
    ScaledType,
    ScaledWorker,
    Scene,
    Standing,
)

_GONE = (NodeState.LOST, NodeState.LEFT)


def scaled_types(cluster: Cluster) -> list[WorkerType]:
    """Those that demand may change the number of workers of."""
    return [t for t in cluster.worker_types.values() if t.max_workers is not None]


def scene_of(
    cluster: Cluster,
    leaving: Container[str],
    node_workers: int,
    now: float,
    epoch_s: float,
) -> Scene:
    """What there is at this moment; `node_workers` of 0 is one for each core."""
    kinds = tuple(_scaled(kind) for kind in scaled_types(cluster))
    names = {kind.name for kind in kinds}
    mine = [w for w in cluster.workers.values() if w.worker.spec.worker_type in names]
    kept = cluster.scheduler.kept() if mine else frozenset()
    standings = {w.id: standing(cluster, w, leaving) for w in cluster.workers.values()}
    return Scene(
        now,
        kinds,
        tuple(_worker(cluster, w, standings[w.id], w.id in kept) for w in mine),
        tuple(_room(cluster, n, node_workers) for n in cluster.nodes.values()),
        cluster.scheduler.demands(epoch_s),
        sum(found is not Standing.OUT for found in standings.values()),
    )


def standing(cluster: Cluster, link: WorkerLink, leaving: Container[str]) -> Standing:
    worker = link.worker
    node = cluster.nodes.get(worker.node_id)
    if link.id in leaving:
        return Standing.LEAVING
    if node is None or node.node.state in _GONE or node.holds or link.is_parked:
        return Standing.OUT
    if worker.state is WorkerState.ERROR:
        return Standing.BROKEN
    # One that served before the manager started is on its way until it is heard of.
    is_serving = cluster.scheduler.serves(link.id)
    return Standing.SERVING if is_serving else Standing.STARTING


def _scaled(kind: WorkerType) -> ScaledType:
    return ScaledType(
        kind.name,
        frozenset((kind.job_type,) if kind.job_type else ()),
        kind.min_workers,
        kind.max_workers or 0,
        read_wish(kind.gpus).count,
    )


def _worker(
    cluster: Cluster, link: WorkerLink, found: Standing, is_kept: bool
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
