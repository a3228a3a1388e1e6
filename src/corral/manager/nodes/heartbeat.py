"""Breakers of nodes: what agents say of them, events for it, and resets by operators.

An agent decides when one opens and closes; here nothing is judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from corral.core.nodes.breaker import BreakerReport
from corral.errors import NotFound
from corral.manager.cluster.state import NodeLink
from corral.manager.workers.lifecycle import Restarting
from corral.manager.workers.registry import Registry
from corral.store.base import Event, Store

_TITLE_LENGTH = 300


async def note(
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
    events = [_opened(link, b, now) for b in opened]
    events += [_closed(link, b, now) for b in closed]
    if events:
        await store.add_events(events)


def _opened(link: NodeLink, breaker: BreakerReport, now: datetime) -> Event:
    words = f"{link.node.hostname} starts no {breaker.key}: {breaker.text}"
    title = _title(words)
    return Event("breaker_opened", title, "warning", link.node.id, at=now)


def _closed(link: NodeLink, breaker: BreakerReport, now: datetime) -> Event:
    title = _title(f"{link.node.hostname} starts {breaker.key} again: breaker closed")
    return Event("breaker_closed", title, "info", link.node.id, at=now)


def _title(words: str) -> str:
    # Errors are what user code says; the store takes no NUL.
    return "".join(c if c.isprintable() else " " for c in words)[:_TITLE_LENGTH]


async def reset(
    registry: Registry, restarting: Restarting, node_id: str, key: str | None = None
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
