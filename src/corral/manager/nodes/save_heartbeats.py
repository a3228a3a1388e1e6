"""Writes what heartbeats brought, batched, once a second."""

from __future__ import annotations

from dataclasses import replace

from corral.core.insight.metric import GpuSample, rate, with_gpus
from corral.core.nodes.node import Sample
from corral.manager.cluster.state import NodeLink
from corral.manager.context import ManagerContext
from corral.store.base import MetricStore

# Over longer gaps a mean rate would tell of times nobody looked at.
_GAP_SAMPLES = 3.5


class NodeReadings:
    """One commit for all beats of the last `stamp_s` seconds."""

    def __init__(
        self, ctx: ManagerContext, sample_s: float = 30.0, stamp_s: float = 10.0
    ) -> None:
        self._cluster = ctx.cluster
        self._store: MetricStore = ctx.store.metrics
        self._clock = ctx.clock
        self._gap_s = sample_s * _GAP_SAMPLES
        self._stamp_s = stamp_s
        self._stamped_at = 0.0
        self._former: dict[str, Sample] = {}

    async def step(self) -> None:
        now = self._clock.monotonic()
        fresh = [n for n in self._cluster.nodes.values() if not n.is_sample_kept]
        is_due = now - self._stamped_at >= self._stamp_s
        if not fresh and not is_due:
            return
        beaten = self._stamp(now) if is_due else []
        samples = [s for link in fresh if (s := self._take(link)) is not None]
        cards = [card for link in fresh for card in _cards(link)]
        ids = [link.node.id for link in beaten]
        if ids or samples:
            await self._store.save_beats(ids, self._clock.now(), samples, cards)

    def _stamp(self, now: float) -> list[NodeLink]:
        """Nodes that beat since the last time: a row each for them and their workers,
        so not with every sample that comes.
        """
        self._stamped_at = now
        beaten = [n for n in self._cluster.nodes.values() if not n.is_stamped]
        for link in beaten:
            link.is_stamped = True
        return beaten

    def _take(self, link: NodeLink) -> Sample | None:
        """Its latest sample, with what is told by it and the one before."""
        link.is_sample_kept = True
        if link.sample is None:
            return None
        sample = with_gpus(replace(link.sample, node_id=link.node.id), link.gpus or ())
        former = self._former.get(link.node.id)
        self._former[link.node.id] = sample
        if former is None:
            return sample
        received = (former.at, former.network_rx_bytes)
        sent = (former.at, former.network_tx_bytes)
        return replace(
            sample,
            network_rx_rate=rate(
                received, (sample.at, sample.network_rx_bytes), self._gap_s
            ),
            network_tx_rate=rate(
                sent, (sample.at, sample.network_tx_bytes), self._gap_s
            ),
        )


def _cards(link: NodeLink) -> list[GpuSample]:
    """Readings of its cards; a card that cannot be read has none."""
    if link.sample is None:
        return []
    at = link.sample.at
    return [
        GpuSample(link.node.id, at, gpu) for gpu in link.gpus or () if gpu.error is None
    ]
