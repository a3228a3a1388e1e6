"""What nodes and workers last said of GPUs, read: whose cards, how much, how busy.

Changes nothing; what a heartbeat changes is in `manager/nodes/heartbeat.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from corral.core.nodes.gpu import Gpu
from corral.core.nodes.node import NodeState
from corral.manager.cluster.state import Cluster, NodeLink, WorkerLink


def of_worker(cluster: Cluster, link: WorkerLink) -> list[Gpu]:
    """The cards a worker has for itself, as its node last told of them."""
    ids = bound_ids(link.facts)
    node = cluster.nodes.get(link.worker.node_id)
    known = {gpu.id: gpu for gpu in (node.gpus if node else None) or ()}
    return [known[gpu_id] for gpu_id in ids if gpu_id in known]


def bound_ids(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """What a worker's beat says of its cards; whatever is no list of texts is none."""
    told = facts.get("gpus")
    return tuple(map(str, told)) if isinstance(told, list) else ()


def has_moved(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Was a worker taken from the cards it had?"""
    had = bound_ids(before)
    return bool(had) and had != bound_ids(now)


def memory_total_mb(links: Iterable[NodeLink]) -> float:
    return sum(gpu.memory_total_mb or 0.0 for gpu in _offered(links))


def memory_offered_mb(links: Iterable[NodeLink]) -> float:
    """What may be given out now; cards that do not tell what is in use count as 0."""
    return sum(gpu.memory_offered_mb or 0.0 for gpu in _offered(links))


def _offered(links: Iterable[NodeLink]) -> Iterator[Gpu]:
    for link in links:
        if link.node.state is NodeState.ONLINE:
            yield from (gpu for gpu in link.gpus or () if gpu.is_offered)


def utilization(links: Iterable[NodeLink]) -> float:
    """Mean use in percent of the cards that online nodes offer; 0 without any."""
    return mean_use(_offered(links))


def mean_use(cards: Iterable[Gpu]) -> float:
    """Mean use in percent of the cards that tell it; 0 without any."""
    figures = [
        gpu.utilization_percent for gpu in cards if gpu.utilization_percent is not None
    ]
    return sum(figures) / len(figures) if figures else 0.0
