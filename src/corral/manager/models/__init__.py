"""Models: the catalogue, their sources, and who has which in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from corral.manager.context import ManagerContext
from corral.manager.feature import Feature, Loop
from corral.manager.models.catalogue import Catalogue
from corral.manager.models.memory import ModelConfig, ModelMemory
from corral.manager.models.rebalance_prefetch import Prefetcher, Rebalancer
from corral.manager.models.sources import SourceConfig
from corral.manager.output.objects import Objects
from corral.manager.prometheus import Gauge, MetricFamily, largest
from corral.manager.tasks import Tasks

_MB = 1 << 20


class Models(Feature):
    def __init__(
        self,
        ctx: ManagerContext,
        tasks: Tasks,
        objects: Objects,
        config: ModelConfig,
        sources: SourceConfig,
    ) -> None:
        self._cluster = ctx.cluster
        self._began = ctx.clock.now()
        self.memory = ModelMemory(ctx, tasks, config)
        self.catalogue = Catalogue(ctx, self.memory, objects, sources)
        self.rebalancer = Rebalancer(ctx, self.memory)
        self.prefetcher = Prefetcher(ctx, self.memory)

    async def open(self) -> None:
        # Loads that were asked for are tasks: those are in memory by now.
        await self.memory.load()
        await self.catalogue.load()

    def loops(self) -> Sequence[Loop]:
        return (
            self.memory.loop(),
            self.rebalancer.loop(),
            self.prefetcher.loop(),
            *self.catalogue.loops(),
        )

    async def close(self) -> None:
        await self.catalogue.close()

    def known(self) -> dict[str, datetime]:
        """Models of the catalogue, those that workers hold, can name or are to keep.

        With each: since when.
        """
        found = {
            model.name: model.created_at or self._began
            for model in self._cluster.catalogue.values()
        }
        for link in self._cluster.workers.values():
            for name in link.shelf.offered:
                found.setdefault(name, self._began)
            for name, held in link.shelf.held.items():
                found[name] = held.loaded_at or self._began
        for worker_id, name in self.memory.pins:
            if worker_id in self._cluster.workers:
                found.setdefault(name, self._began)
        return dict(sorted(found.items()))

    def gauges(self) -> Iterator[MetricFamily]:
        held: Counter[str] = Counter()
        sizes: dict[str, float] = {}
        for link in self._cluster.workers.values():
            for model in link.shelf.held.values():
                held[model.name] += 1
                size = (link.shelf.takes_mb(model) or 0.0) * _MB
                sizes[model.name] = sizes.get(model.name, 0.0) + size
        yield Gauge(
            "corral_model_workers",
            "Workers that have a model in memory.",
            largest(held),
            ("model",),
        )
        yield Gauge(
            "corral_model_memory_bytes",
            "Memory that a model takes on all workers, where they say.",
            largest(sizes),
            ("model",),
        )
