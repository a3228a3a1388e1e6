"""Tells a model manager which workers have which of its models in memory.

Nobody waits for it: while it does not answer, what it missed is told later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from corral.errors import Unavailable
from corral.manager.clock import Clock
from corral.manager.cluster.gpus import of_worker
from corral.manager.cluster.state import Cluster, WorkerLink
from corral.manager.feature import Loop
from corral.manager.models.service import ModelService

log = logging.getLogger(__name__)
_PERIOD_S = 1.0
_UNKNOWN_S = 300.0
_AWAY_S = 5.0
_GB = 1024.0


class ModelTelling:
    def __init__(self, cluster: Cluster, service: ModelService, clock: Clock) -> None:
        self._cluster = cluster
        self._service = service
        self._clock = clock
        self._told: dict[tuple[str, str], str] = {}
        self._unknown: dict[str, float] = {}
        self._next = 0.0
        self._is_away = False

    def loop(self, on_deposed: Callable[[], None]) -> Loop:
        return Loop("model manager", _PERIOD_S, self.step, on_deposed)

    async def step(self) -> None:
        """Tell what has changed since it was last told."""
        if self._clock.monotonic() < self._next:
            return
        try:
            await self._tell()
        except Unavailable as error:
            self._next = self._clock.monotonic() + _AWAY_S
            if not self._is_away:
                log.warning("%s; it is told later who has which model", error.message)
            self._is_away = True
            return
        if self._is_away:
            log.info("the model manager answers again")
        self._is_away = False

    async def _tell(self) -> None:
        held = {
            (link.id, name): link
            for link in list(self._cluster.workers.values())
            for name in link.shelf.held
        }
        for place in [p for p in self._told if p not in held]:
            # Some versions cannot do it; nothing is gained by asking twice.
            if model_id := self._told[place]:
                await self._service.unassign(model_id, place[0])
            del self._told[place]
        for place, link in held.items():
            if place not in self._told and not self._is_unknown(place[1]):
                await self._assign(link, place[1])

    def _is_unknown(self, name: str) -> bool:
        return self._unknown.get(name, 0.0) > self._clock.monotonic()

    async def _assign(self, link: WorkerLink, name: str) -> None:
        found = await self._service.find(name)
        if found is None:
            self._unknown[name] = self._clock.monotonic() + _UNKNOWN_S
            return
        status = await self._service.assign(found.id, self._worker(link))
        if status >= 400:
            log.info("the model manager answered %d to the worker of %s", status, name)
        self._told[link.id, name] = found.id

    def _worker(self, link: WorkerLink) -> dict[str, Any]:
        """A worker in the service's own words."""
        cards = of_worker(self._cluster, link)
        node = self._cluster.nodes.get(link.worker.node_id)
        total_mb = sum(card.memory_total_mb or 0.0 for card in cards)
        used_mb = sum(card.memory_used_mb or 0.0 for card in cards)
        return {
            "id": link.id,
            "gpu_index": min(cards[0].index, 4) if cards else 0,
            "hostname": node.node.hostname if node else "",
            "memory_total_gb": total_mb / _GB,
            "memory_used_gb": used_mb / _GB,
            "memory_available_gb": (total_mb - used_mb) / _GB,
            "loaded_models": sorted(link.shelf.held),
            "status": "online",
        }
