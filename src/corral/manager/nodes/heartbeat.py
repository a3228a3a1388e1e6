"""Breakers of nodes: what agents say of them, events for it, and resets by operators.

An agent decides when one opens and closes; here nothing is judged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from corral.core.nodes.breaker import BreakerReport
from corral.core.nodes.clock_skew import ALARM_S
from corral.core.nodes.gpu import Gpu, GpuChange, GpuEvent, compare, is_called
from corral.core.nodes.node import Hold, HoldSource
from corral.core.nodes.version import VersionFit, fit
from corral.errors import Conflict, NotFound, VersionRefused
from corral.manager.clock import Clock
from corral.manager.cluster.state import NodeLink
from corral.manager.workers.lifecycle import WorkerRestarts
from corral.manager.workers.registry import Registry
from corral.store.base import Event, Store

_GRAVE = (GpuEvent.REMOVED, GpuEvent.FAILED, GpuEvent.QUARANTINED)


_SAYS = {
    GpuEvent.ADDED: "has a new GPU",
    GpuEvent.REMOVED: "has lost a GPU",
    GpuEvent.FAILED: "cannot read a GPU",
    GpuEvent.RECOVERED: "can use a GPU again",
    GpuEvent.DRIVER_CHANGED: "has another GPU driver",
    GpuEvent.QUARANTINED: "has put a GPU in quarantine",
}


async def note_gpus(
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
        await store.add_events([_gpu_event(link, change, now) for change in changes])


def _gpu_event(link: NodeLink, change: GpuChange, now: datetime) -> Event:
    gpu = change.gpu
    words = f"{link.node.hostname} {_SAYS[change.event]}: {gpu.name} ({gpu.id})"
    if change.detail:
        words += f", {change.detail}"
    # Names come from drivers; the store takes no NUL.
    title = "".join(c if c.isprintable() else " " for c in words)[:_TITLE_LENGTH]
    severity = "warning" if change.event in _GRAVE else "info"
    return Event(str(change.event), title, severity, link.node.id, at=now)


def release_gpu(link: NodeLink, name: str) -> Gpu:
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


_TITLE_LENGTH = 300


async def note_breakers(
    store: Store, link: NodeLink, said: Sequence[BreakerReport], now: datetime
) -> None:
    """Keep what a node said; one that opened or closed since becomes an event.

    The first word after a manager's start is compared with nothing: it had only
    forgotten them. A probe that failed is no event: the breaker was open all along.
    """
    former, link.breakers = link.breakers, said
    if former is None or not (former or said):
        return
    before, after = {b.key for b in former}, {b.key for b in said}
    opened = [b for b in said if b.key not in before]
    closed = [b for b in former if b.key not in after]
    events = [_breaker_opened(link, b, now) for b in opened]
    events += [_breaker_closed(link, b, now) for b in closed]
    if events:
        await store.add_events(events)


def _breaker_opened(link: NodeLink, breaker: BreakerReport, now: datetime) -> Event:
    words = f"{link.node.hostname} starts no {breaker.key}: {breaker.text}"
    title = _breaker_title(words)
    return Event("breaker_opened", title, "warning", link.node.id, at=now)


def _breaker_closed(link: NodeLink, breaker: BreakerReport, now: datetime) -> Event:
    title = _breaker_title(
        f"{link.node.hostname} starts {breaker.key} again: breaker closed"
    )
    return Event("breaker_closed", title, "info", link.node.id, at=now)


def _breaker_title(words: str) -> str:
    # Errors are what user code says; the store takes no NUL.
    return "".join(c if c.isprintable() else " " for c in words)[:_TITLE_LENGTH]


async def reset_breakers(
    registry: Registry, restarting: WorkerRestarts, node_id: str, key: str | None = None
) -> dict[str, list[str]]:
    """Have the workers that wait for a breaker started at once, which closes it.

    The wish is each worker's generation, kept in the store, so that an agent that is
    away hears of it when it is back.

    Returns:
        By key, the workers that waited for it.
    """
    registry.node(node_id)
    waiting: dict[str, list[str]] = {}
    for link in registry.of_node(node_id):
        if link.breaker is not None and key in (None, link.breaker):
            waiting.setdefault(link.breaker, []).append(link.id)
    if key is not None and not waiting:
        raise NotFound(f"no worker of node {node_id} waits for a breaker {key!r}")
    for worker_ids in waiting.values():
        for worker_id in worker_ids:
            await restarting.restart(worker_id)
    return waiting


# Nodes whose clock or version is not ours: shown, told once, refused when too far.


async def note_clock(
    store: Store, clock: Clock, link: NodeLink, sent_at: float | None
) -> None:
    """Take in what a message says of its sender's clock."""
    if sent_at is None or not math.isfinite(sent_at):
        return
    now = clock.now()
    link.clock = link.clock.heard(sent_at, now.timestamp())
    was, link.is_clock_off = (
        link.is_clock_off,
        link.clock.is_alarming(link.is_clock_off),
    )
    if was is link.is_clock_off:
        return
    lead = link.clock.seconds or 0.0
    name, word = link.node.hostname, "ahead of" if lead > 0 else "behind"
    if link.is_clock_off:
        title = f"the clock of {name} is {abs(lead):.1f} s {word} the manager's"
        event = Event(
            "clock_skew",
            title,
            "warning",
            link.node.id,
            f"more than {ALARM_S:g} s; set it by NTP. Times it reports are corrected.",
            {"clock_skew_s": round(lead, 3)},
            at=now,
        )
    else:
        title = f"the clock of {name} is right again"
        event = Event("clock_ok", title, source_node_id=link.node.id, at=now)
    await store.add_events([event])


def check_version(theirs: str | None, ours: str) -> VersionFit:
    """How a node's version fits ours.

    Raises:
        VersionRefused: they are too far apart to work together.
    """
    found = fit(theirs, ours)
    if found is VersionFit.APART:
        raise VersionRefused(
            f"this node has Corral {theirs} and the manager {ours}: they may be one "
            f"minor version apart at most; install {ours} here, or a nearer one",
            node_version=theirs,
            manager_version=ours,
        )
    return found


async def note_version(
    store: Store, clock: Clock, link: NodeLink, found: VersionFit
) -> None:
    """Tell once that a node has another version than we."""
    was, link.version_skew = link.version_skew, found.skew
    if found.skew is None or was == found.skew:
        return
    title = f"{link.node.hostname} has Corral {link.node.version}, {found} than ours"
    event = Event("version_skew", title, "warning", link.node.id, at=clock.now())
    await store.add_events([event])


# Nodes their owners use: what an agent says of it becomes a hold, and an event.

_LENGTH = 300


async def note_owner(
    store: Store, clock: Clock, link: NodeLink, reason: str | None, *, drain: bool
) -> None:
    """Keep an agent's word: why the owner uses the node, None when he does not."""
    before, now, name = link.owner_hold, clock.now(), link.node.hostname
    if reason is None:
        if before is not None:
            link.owner_hold = None
            title = f"the owner of {name} no longer uses it"
            event = Event("owner_gone", title, source_node_id=link.node.id, at=now)
            await store.add_events([event])
        return
    # It comes from names of programs; the store takes no NUL.
    words = "".join(c if c.isprintable() else " " for c in reason)[:_LENGTH]
    if before is not None:
        if (before.reason, before.drain) != (words, drain):
            link.owner_hold = replace(before, reason=words, drain=drain)
        return
    link.owner_hold = Hold(HoldSource.OWNER, words, drain, now)
    title = f"the owner of {name} uses it: {words}"
    event = Event("owner_active", title, source_node_id=link.node.id, at=now)
    await store.add_events([event])
