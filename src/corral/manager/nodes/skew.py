"""Nodes whose clock or version is not ours: shown, told once, refused when too far."""

from __future__ import annotations

import math

from corral.core.nodes.clock_skew import ALARM_S
from corral.core.nodes.version import Fit, fit
from corral.errors import VersionRefused
from corral.manager.clock import Clock
from corral.manager.cluster.state import NodeLink
from corral.store.base import Event, Store


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


def check_version(theirs: str | None, ours: str) -> Fit:
    """How a node's version fits ours.

    Raises:
        VersionRefused: they are too far apart to work together.
    """
    found = fit(theirs, ours)
    if found is Fit.APART:
        raise VersionRefused(
            f"this node has Corral {theirs} and the manager {ours}: they may be one "
            f"minor version apart at most; install {ours} here, or a nearer one",
            node_version=theirs,
            manager_version=ours,
        )
    return found


async def note_version(store: Store, clock: Clock, link: NodeLink, found: Fit) -> None:
    """Tell once that a node has another version than we."""
    was, link.version_skew = link.version_skew, found.skew
    if found.skew is None or was == found.skew:
        return
    title = f"{link.node.hostname} has Corral {link.node.version}, {found} than ours"
    event = Event("version_skew", title, "warning", link.node.id, at=clock.now())
    await store.add_events([event])
