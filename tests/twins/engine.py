"""The in-memory twin of the dispatcher: orders land in a list, nothing is sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from corral.engine.address import RedisAddress
from corral.engine.tunnel import EngineLink, connect
from corral.errors import EngineUnavailable


class InlineDispatcher:
    """Keeps what was sent, by queue; `is_down` makes every call fail."""

    def __init__(self) -> None:
        self.address = RedisAddress("127.0.0.1", 0, None, 0, None, None, False)
        self.sent: dict[str, list[Mapping[str, str]]] = defaultdict(list)
        self.rung: list[str] = []
        self.is_down = False
        self.revoked: list[str] = []

    def _check(self) -> None:
        if self.is_down:
            raise EngineUnavailable("the inline engine is switched off")

    async def send(self, queue: str, order_id: str, signed: Mapping[str, str]) -> None:
        self._check()
        self.sent[queue].append(signed)

    async def forget(self, queue: str) -> None:
        self._check()
        self.sent.pop(queue, None)

    async def server_id(self) -> str:
        self._check()
        return "inline"

    async def ring(self, worker_ids: Sequence[str]) -> None:
        self._check()
        self.rung.extend(worker_ids)

    async def grant(self, node_id: str, password: str) -> str | None:
        self._check()
        return None

    async def revoke(self, node_id: str) -> None:
        self._check()
        self.revoked.append(node_id)

    async def open(self, node_id: str, password: str) -> EngineLink:
        self._check()
        try:
            return await connect(self.address, f"node-{node_id}")
        except OSError as e:
            raise EngineUnavailable(f"nobody listens: {e}") from e

    async def close(self) -> None:
        self.sent.clear()
