"""A service that takes 50 ms for every answer; prints the port it listens on."""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from starlette.types import Receive, Scope, Send

NAP_S = 0.05
BODY = b'{"rested":true}'


async def nap(scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.sleep(NAP_S)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(BODY)),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(nap, log_config=None, lifespan="off")
    uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main()
