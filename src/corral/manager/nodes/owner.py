"""Nodes their owners use: what an agent says of it becomes a hold, and an event."""

from __future__ import annotations

from dataclasses import replace

from corral.core.nodes.node import Hold, HoldSource
from corral.manager.clock import Clock
from corral.manager.cluster.state import NodeLink
from corral.store.base import Event, Store

_LENGTH = 300


async def note(
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
