"""Writes what heartbeats brought and the audit trail, batched, once a second."""

from __future__ import annotations

from dataclasses import replace

from corral.core.node import Sample
from corral.manager.access import Access
from corral.manager.clock import Clock
from corral.manager.state import Cluster
from corral.store.base import Retention, Store


class Monitor:
    """One commit for all beats of the last `stamp_s` seconds."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        access: Access,
        clock: Clock,
        stamp_s: float = 10.0,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._access = access
        self._clock = clock
        self._stamp_s = stamp_s
        self._stamped_at = 0.0

    async def step(self) -> None:
        await self._access.flush_audit()
        now = self._clock.monotonic()
        samples = self._new_samples()
        if not samples and now - self._stamped_at < self._stamp_s:
            return
        self._stamped_at = now
        beaten = [n for n in self._cluster.nodes.values() if not n.is_stamped]
        for link in beaten:
            link.is_stamped = True
        ids = [link.node.id for link in beaten]
        if ids or samples:
            await self._store.save_beats(ids, self._clock.now(), samples)

    def _new_samples(self) -> list[Sample]:
        fresh = []
        for link in self._cluster.nodes.values():
            if link.sample is not None and not link.is_sample_kept:
                link.is_sample_kept = True
                fresh.append(replace(link.sample, node_id=link.node.id))
        return fresh


class Prune:
    """Deletes what is past its time."""

    def __init__(self, store: Store, clock: Clock, keep: Retention) -> None:
        self._store = store
        self._clock = clock
        self._keep = keep

    async def step(self) -> None:
        await self._store.prune(self._clock.now(), self._keep)
