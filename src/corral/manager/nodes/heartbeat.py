"""Heartbeats of nodes: what each of them says, kept and told on.

An agent decides what it says (when a breaker opens, whether its owner is there); here
nothing is judged but its clock and version.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from urllib.parse import urlsplit

from corral.core.access.address import same_address
from corral.core.nodes.breaker import BreakerReport
from corral.core.nodes.clock_skew import ALARM_S
from corral.core.nodes.gpu import Gpu, GpuChange, GpuEvent, compare
from corral.core.nodes.node import Hold, HoldSource
from corral.core.nodes.peer import Peer
from corral.core.nodes.version import VersionFit, fit
from corral.errors import VersionRefused
from corral.manager.cluster.held_models import ReportedModels
from corral.manager.cluster.state import NodeLink
from corral.manager.context import ManagerContext
from corral.manager.nodes.registry import NodeRegistry
from corral.manager.nodes.resources import note_offers
from corral.manager.tasks.dispatch import Dispatch
from corral.relay.port import has_port
from corral.store.base import Event
from corral.wire.agent import Beat, OwnerWord

_GRAVE = (GpuEvent.REMOVED, GpuEvent.FAILED, GpuEvent.QUARANTINED)
_SAYS = {
    GpuEvent.ADDED: "has a new GPU",
    GpuEvent.REMOVED: "has lost a GPU",
    GpuEvent.FAILED: "cannot read a GPU",
    GpuEvent.RECOVERED: "can use a GPU again",
    GpuEvent.DRIVER_CHANGED: "has another GPU driver",
    GpuEvent.QUARANTINED: "has put a GPU in quarantine",
}
_TITLE_LENGTH = 300


class Heartbeats:
    def __init__(
        self, ctx: ManagerContext, nodes: NodeRegistry, dispatch: Dispatch
    ) -> None:
        self._cluster = ctx.cluster
        self._clock = ctx.clock
        self._record = ctx.record
        self._signals = ctx.signals
        self._nodes = nodes
        self._dispatch = dispatch

    async def beat(self, node_id: str, beat: Beat) -> tuple[int, list[tuple[str, int]]]:
        """Take in a heartbeat; (desired version, attempts it must drop).

        Raises:
            NodeNotFound, Conflict: unknown, or its epoch is over.
        """
        # First, because it refuses: nothing is kept of an agent whose epoch is over.
        told = await self._nodes.beat(node_id, beat)
        link, now = self._cluster.node(node_id), self._clock.now()
        if beat.gpus is not None:
            await self._note_gpus(link, beat.gpus, now)
        await self._note_breakers(link, beat.breakers, now)
        self._note_models(link, beat)
        if note_offers(self._cluster, link, beat.workers):
            self._dispatch.kick()
        link.peer = _reachable(beat.peer, link.node.address)
        await self.note_clock(link, beat.clock)
        await self._note_owner(link, beat.owner)
        return told

    def _note_models(self, node: NodeLink, beat: Beat) -> None:
        """Beats repeat what workers said of models, for a manager that began anew."""
        lead_s = node.clock.correction_s
        for told in beat.workers:
            link = self._cluster.workers.get(told.worker_id)
            if link is None or link.worker.node_id != node.node.id:
                continue
            if not told.incarnation or told.incarnation != link.worker.incarnation:
                continue
            if word := ReportedModels.among(told.facts, lead_s):
                self._signals.models_reported.tell(link, word)
        self._signals.node_beat.tell(node.node.id, beat.gpus is not None)

    async def _note_gpus(
        self, link: NodeLink, gpus: Sequence[Gpu], now: datetime
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
            await self._record([_gpu_event(link, change, now) for change in changes])

    async def _note_breakers(
        self, link: NodeLink, said: Sequence[BreakerReport], now: datetime
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
            await self._record(events)

    async def note_clock(self, link: NodeLink, sent_at: float | None) -> None:
        """Take in what a message says of its sender's clock."""
        if sent_at is None or not math.isfinite(sent_at):
            return
        now = self._clock.now()
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
                f"more than {ALARM_S:g} s; set it by NTP. "
                "Times it reports are corrected.",
                {"clock_skew_s": round(lead, 3)},
                at=now,
            )
        else:
            title = f"the clock of {name} is right again"
            event = Event("clock_ok", title, source_node_id=link.node.id, at=now)
        await self._record([event])

    async def note_version(self, link: NodeLink, found: VersionFit) -> None:
        """Tell once that a node has another version than we."""
        was, link.version_skew = link.version_skew, found.skew
        if found.skew is None or was == found.skew:
            return
        title = (
            f"{link.node.hostname} has Corral {link.node.version}, {found} than ours"
        )
        event = Event(
            "version_skew", title, "warning", link.node.id, at=self._clock.now()
        )
        await self._record([event])

    async def _note_owner(self, link: NodeLink, word: OwnerWord | None) -> None:
        """Keep an agent's word: whether the owner uses the node, and why."""
        before, now, name = link.owner_hold, self._clock.now(), link.node.hostname
        if word is None or not word.active:
            if before is not None:
                link.owner_hold = None
                title = f"the owner of {name} no longer uses it"
                event = Event("owner_gone", title, source_node_id=link.node.id, at=now)
                await self._record([event])
            return
        reason, drain = word.reason or "in use", word.drain
        # It comes from names of programs; the store takes no NUL.
        words = "".join(c if c.isprintable() else " " for c in reason)[:_TITLE_LENGTH]
        if before is not None:
            if (before.reason, before.drain) != (words, drain):
                link.owner_hold = replace(before, reason=words, drain=drain)
            return
        link.owner_hold = Hold(HoldSource.OWNER, words, drain, now)
        title = f"the owner of {name} uses it: {words}"
        event = Event("owner_active", title, source_node_id=link.node.id, at=now)
        await self._record([event])


def _reachable(peer: Peer | None, address: str | None) -> Peer | None:
    """Other nodes will be sent there: to a port of that node, and to no path of its
    choice. One that we see at another address than its own gives nothing.
    """
    if peer is None or not has_port(peer.url):
        return None
    parts = urlsplit(peer.url)
    if not same_address(parts.hostname or "", address or ""):
        return None
    place = parts.netloc.rpartition("@")[2]
    return replace(peer, url=f"http://{place}")


def _gpu_event(link: NodeLink, change: GpuChange, now: datetime) -> Event:
    gpu = change.gpu
    words = f"{link.node.hostname} {_SAYS[change.event]}: {gpu.name} ({gpu.id})"
    if change.detail:
        words += f", {change.detail}"
    # Names come from drivers; the store takes no NUL.
    title = "".join(c if c.isprintable() else " " for c in words)[:_TITLE_LENGTH]
    severity = "warning" if change.event in _GRAVE else "info"
    return Event(str(change.event), title, severity, link.node.id, at=now)


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
