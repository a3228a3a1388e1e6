"""What nodes say of their GPUs: the latest of each, and events for what changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from corral.core.nodes.gpu import Gpu, GpuChange, GpuEvent, compare, is_called
from corral.core.nodes.node import NodeState
from corral.errors import Conflict, NotFound
from corral.manager.cluster.state import Cluster, NodeLink, WorkerLink
from corral.store.base import Event, Store

_TITLE_LENGTH = 300
_GRAVE = (GpuEvent.REMOVED, GpuEvent.FAILED, GpuEvent.QUARANTINED)
_SAYS = {
    GpuEvent.ADDED: "has a new GPU",
    GpuEvent.REMOVED: "has lost a GPU",
    GpuEvent.FAILED: "cannot read a GPU",
    GpuEvent.RECOVERED: "can use a GPU again",
    GpuEvent.DRIVER_CHANGED: "has another GPU driver",
    GpuEvent.QUARANTINED: "has put a GPU in quarantine",
}


async def note(
    store: Store, link: NodeLink, gpus: Sequence[Gpu], now: datetime
) -> None:
    """Keep what a node said; what is different from before becomes events.

    The first word after a manager's start is compared with nothing: the cards were
    there before, and the manager had only forgotten them.
    """
    former, link.gpus = link.gpus, gpus
    link.gpu_releases = {
        gpu.id: gpu.quarantine.since
        for gpu in gpus
        if gpu.quarantine and gpu.quarantine.since == link.gpu_releases.get(gpu.id)
    }
    if former is None:
        return
    changes = compare(former, gpus)
    if changes:
        await store.add_events([_event(link, change, now) for change in changes])


def _event(link: NodeLink, change: GpuChange, now: datetime) -> Event:
    gpu = change.gpu
    words = f"{link.node.hostname} {_SAYS[change.event]}: {gpu.name} ({gpu.id})"
    if change.detail:
        words += f", {change.detail}"
    # Names come from drivers; the store takes no NUL.
    title = "".join(c if c.isprintable() else " " for c in words)[:_TITLE_LENGTH]
    severity = "warning" if change.event in _GRAVE else "info"
    return Event(str(change.event), title, severity, link.node.id, at=now)


def release(link: NodeLink, name: str) -> Gpu:
    """Lift the quarantine of a card: its node is told, and has it done.

    Raises:
        NotFound: the node has no such card.
        Conflict: it is not in quarantine.
    """
    word = name.removeprefix("gpu:")
    card = next((gpu for gpu in link.gpus or () if is_called(gpu, word)), None)
    if card is None:
        raise NotFound(f"node {link.node.id} has no GPU {name!r}", gpu_id=name)
    if card.quarantine is None:
        raise Conflict(f"GPU {card.id} is not in quarantine", gpu_id=card.id)
    link.gpu_releases[card.id] = card.quarantine.since
    link.touch_desired()
    return card


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
