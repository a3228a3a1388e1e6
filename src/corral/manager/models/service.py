"""A model manager over HTTP: asked for models, told which worker has which.

It gives facts of models and no files; those lie in a folder that it shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from corral.errors import Unavailable
from corral.trust import tls_context

TIMEOUT_S = 10.0
PAGE = 100
THERE = frozenset({"available", "loading", "loaded"})


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


def _read(row: dict[str, Any]) -> ServiceModel:
    return ServiceModel(
        str(row.get("id", "")),
        str(row.get("name", "")),
        str(row.get("type") or row.get("model_type") or "other"),
        float(row.get("size_gb") or 0.0),
        str(row.get("status") or "available"),
        tuple(str(tag) for tag in row.get("tags") or ()),
    )
