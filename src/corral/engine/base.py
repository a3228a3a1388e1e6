"""The seam between the manager and the engine; tests/contract holds both to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from corral.engine.address import RedisAddress
from corral.engine.tunnel import EngineLink


class Engine(Protocol):
    """Carries orders to workers' queues. Every call may raise EngineUnavailable."""

    address: RedisAddress

    async def send(
        self, queue: str, order_id: str, signed: Mapping[str, str]
    ) -> None: ...

    async def forget(self, queue: str) -> None: ...

    async def server_id(self) -> str: ...

    async def ring(self, worker_ids: Sequence[str]) -> None: ...

    async def grant(self, node_id: str, password: str) -> str | None: ...

    async def revoke(self, node_id: str) -> None: ...

    async def open(self, node_id: str, password: str) -> EngineLink: ...

    async def close(self) -> None: ...
