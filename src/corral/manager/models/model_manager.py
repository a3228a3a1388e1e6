"""A model manager over HTTP: asked for models, told which worker has which.

It gives facts of models and no files; those lie in a folder that it shares. No task
waits for it: what it could not be told while it was away it is told later.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from corral.errors import Unavailable
from corral.manager.cluster.gpus import of_worker
from corral.manager.cluster.state import WorkerLink
from corral.manager.context import ManagerContext
from corral.manager.feature import Loop
from corral.trust import tls_context

log = logging.getLogger(__name__)
TIMEOUT_S = 10.0
PAGE = 100
THERE = frozenset({"available", "loading", "loaded"})
_PERIOD_S = 1.0
_UNKNOWN_S = 300.0
_AWAY_S = 5.0
_GB = 1024.0


@dataclass(frozen=True, slots=True)
class ServiceModel:
    """A model as the service lists it."""

    id: str
    name: str
    model_type: str = "other"
    size_gb: float = 0.0
    status: str = "available"
    tags: tuple[str, ...] = ()


class ModelService:
    """`close` in the end."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self.host = httpx.URL(url).host
        self._http = httpx.AsyncClient(
            timeout=TIMEOUT_S,
            trust_env=False,
            follow_redirects=True,
            verify=tls_context(url, None),
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def find(self, name: str) -> ServiceModel | None:
        """The model of this name or id; None when the service has none.

        Raises:
            Unavailable: it does not answer.
        """
        page, left = 1, 1
        while left > 0:
            query = {"search": name, "page": page, "page_size": PAGE}
            told = await self._json("GET", "/models/", params=query)
            rows = [_read(row) for row in told.get("models") or []]
            for row in rows:
                if name in (row.name, row.id):
                    return row
            left = int(told.get("total") or 0) - page * PAGE if rows else 0
            page += 1
        return None

    async def download(self, model: ServiceModel) -> None:
        """Have it fetch what it does not have yet."""
        body = {
            "model_name": model.name,
            "model_type": model.model_type,
            "model_id": model.id,
            "tags": list(model.tags),
        }
        await self._json("POST", "/models/download", json=body)

    async def share_done(self, model_id: str) -> float | None:
        """How far a download is, 0 to 1, where the service says so."""
        path = f"/models/{quote(model_id, safe='')}/download-progress"
        told = await self._json("GET", path)
        found = told.get("progress", told.get("percentage"))
        if not isinstance(found, int | float):
            return None
        return found / 100 if found > 1 else float(found)

    async def assign(self, model_id: str, worker: dict[str, Any]) -> int:
        """Say that a worker has a model; the status of the answer.

        A worker the service does not know is made known to it first.
        """
        path = f"/models/{quote(model_id, safe='')}/assign"
        body = {"worker_id": worker["id"], "force": True}
        answer = await self._send("POST", path, json=body)
        if answer.status_code == 404:
            await self._send("POST", "/workers/", json=worker)
            answer = await self._send("POST", path, json=body)
        return answer.status_code

    async def unassign(self, model_id: str, worker_id: str) -> int:
        path = f"/models/{quote(model_id, safe='')}/unassign"
        answer = await self._send("POST", path, json={"worker_id": worker_id})
        return answer.status_code

    async def _json(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        answer = await self._send(method, path, **more)
        try:
            answer.raise_for_status()
            return dict(answer.json())
        except (httpx.HTTPStatusError, ValueError, TypeError):
            status = answer.status_code
            raise self._away(f"it answered {status} to {method} {path}") from None

    async def _send(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            return await self._http.request(method, self._url + path, **more)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._away(str(error) or type(error).__name__) from error

    def _away(self, why: str) -> Unavailable:
        return Unavailable(f"the model manager at {self.host} does not answer: {why}")


class ModelServiceUpdates:
    """Tells it which workers have which of its models in memory."""

    def __init__(self, ctx: ManagerContext, service: ModelService) -> None:
        self._cluster = ctx.cluster
        self._service = service
        self._clock = ctx.clock
        self._told: dict[tuple[str, str], str] = {}
        self._unknown: dict[str, float] = {}
        self._next = 0.0
        self._is_away = False

    def loop(self) -> Loop:
        return Loop("model manager", _PERIOD_S, self.step)

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


def _read(row: dict[str, Any]) -> ServiceModel:
    return ServiceModel(
        str(row.get("id", "")),
        str(row.get("name", "")),
        str(row.get("type") or row.get("model_type") or "other"),
        float(row.get("size_gb") or 0.0),
        str(row.get("status") or "available"),
        tuple(str(tag) for tag in row.get("tags") or ()),
    )
