"""Those who listen to events, without a network."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.unit.api.hanging import Listener
from tests.unit.api.world import World

Json = dict[str, Any]


class Socket:
    """A client's end of a WebSocket to the application, without a network."""

    def __init__(
        self,
        world: World,
        query: str = "",
        key: str | None = None,
        ip: str = "127.0.0.1",
        **headers: str,
    ) -> None:
        auth = key if key is not None else world.read.headers["Authorization"]
        rows = {"host": "corral", "authorization": auth, **headers}
        scope = {
            "type": "websocket",
            "path": "/ws",
            "raw_path": b"/ws",
            "query_string": query.encode(),
            "headers": [(k.encode(), v.encode()) for k, v in rows.items() if v],
            "client": (ip, 1),
            "server": ("corral", 80),
            "subprotocols": [],
            "scheme": "ws",
        }
        self._up: asyncio.Queue[Json] = asyncio.Queue()
        self._down: asyncio.Queue[Json] = asyncio.Queue()
        self._up.put_nowait({"type": "websocket.connect"})
        self.task = asyncio.create_task(self._run(world, scope))

    async def _run(self, world: World, scope: Json) -> None:
        async def send(message: Any) -> None:
            self._down.put_nowait(message)

        await world.app(scope, self._up.get, send)

    async def word(self) -> Json:
        async with asyncio.timeout(60):
            return await self._down.get()

    async def opened(self) -> Json:
        """The first event, once the connection is accepted."""
        assert (await self.word())["type"] == "websocket.accept"
        return await self.hear()

    async def hear(self) -> Json:
        word = await self.word()
        assert word["type"] == "websocket.send", word
        told: Json = json.loads(word["text"])
        return told

    async def until(self, event: str) -> list[Json]:
        """Everything up to and with the first event of that name."""
        heard = [await self.hear()]
        while heard[-1]["event"] != event:
            heard.append(await self.hear())
        return heard

    async def hang_up(self) -> None:
        self._up.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await asyncio.wait_for(self.task, 60)


def names(events: list[Json]) -> list[str]:
    return [event["event"] for event in events]


def events(body: bytes) -> list[Json]:
    rows = [line for line in body.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(row.removeprefix("data: ")) for row in rows]


async def heard(listener: Listener, event: str) -> list[Json]:
    """What a stream has told once it has told this."""
    async with asyncio.timeout(60):
        while event not in names(events(listener.body)):
            await listener.word()
    return events(listener.body)
