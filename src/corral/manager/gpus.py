"""What nodes say of their GPUs: the latest of each, and events for what changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from corral.core.gpu import Gpu, GpuChange, GpuEvent, compare
from corral.core.node import NodeState
from corral.manager.state import NodeLink
from corral.store.base import Event, Store

_TITLE_LENGTH = 300
_GRAVE = (GpuEvent.REMOVED, GpuEvent.FAILED)
_SAYS = {
    GpuEvent.ADDED: "has a new GPU",
    GpuEvent.REMOVED: "has lost a GPU",
    GpuEvent.FAILED: "cannot read a GPU",
    GpuEvent.RECOVERED: "can read a GPU again",
    GpuEvent.DRIVER_CHANGED: "has another GPU driver",
}


async def note(
    store: Store, link: NodeLink, gpus: Sequence[Gpu], now: datetime
) -> None:
    """Keep what a node said; what is different from before becomes events.

    The first word after a manager's start is compared with nothing: the cards were
    there before, and the manager had only forgotten them.
    """
    former, link.gpus = link.gpus, gpus
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


def utilization(links: Iterable[NodeLink]) -> float:
    """Mean use in percent of the cards that online nodes offer; 0 without any."""
    figures = [
        gpu.utilization_percent
        for link in links
        if link.node.state is NodeState.ONLINE
        for gpu in link.gpus or ()
        if gpu.is_offered and gpu.utilization_percent is not None
    ]
    return sum(figures) / len(figures) if figures else 0.0
