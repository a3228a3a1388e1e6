"""Puts orders on workers' queues, rings bells, and gives nodes their Redis users.

Everything here may fail at any moment; the caller decides what that means.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

import redis.asyncio as aioredis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError, ResponseError

from corral.engine.celery_app import BELL, make_app
from corral.engine.envelope import message
from corral.errors import EngineUnavailable

_SERVER = "corral.server"


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where Redis is, without its credentials."""

    host: str | None
    port: int
    path: str | None
    database: int
    username: str | None
    password: str | None
    tls: bool

    @property
    def public_url(self) -> str:
        """The URL others may be shown: no user, no password."""
        if self.path:
            return f"redis+socket://{self.path}?virtual_host={self.database}"
        scheme = "rediss" if self.tls else "redis"
        return f"{scheme}://{self.host}:{self.port}/{self.database}"


def parse_address(url: str) -> RedisAddress:
    """Read a Redis URL in kombu's or redis-py's spelling."""
    parts = urlsplit(url)
    query = {k: v[-1] for k, v in parse_qs(parts.query).items()}
    is_socket = parts.scheme in ("redis+socket", "unix")
    number = query.get("virtual_host") or query.get("db") or ""
    if not is_socket and not number:
        number = parts.path.strip("/")
    return RedisAddress(
        host=None if is_socket else (parts.hostname or "127.0.0.1"),
        port=parts.port or 6379,
        path=parts.path if is_socket else None,
        database=int(number or 0),
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        tls=parts.scheme == "rediss",
    )


class Dispatcher:
    """The manager's side of the engine."""

    def __init__(self, redis_url: str, *, timeout_s: float = 5.0) -> None:
        self.address = parse_address(redis_url)
        self._timeout_s = timeout_s
        self._redis = self._connect()
        self._app = make_app(redis_url)

    def _connect(self) -> aioredis.Redis:
        where = self.address
        place: dict[str, Any] = (
            {"unix_socket_path": where.path}
            if where.path
            else {"host": where.host, "port": where.port, "ssl": where.tls}
        )
        return aioredis.Redis(
            **place,
            db=where.database,
            username=where.username,
            password=where.password,
            socket_timeout=self._timeout_s,
            socket_connect_timeout=self._timeout_s,
            health_check_interval=10,
            # Once more at once, for a connection that a restarted server has closed;
            # waiting between tries is the rescue loop's part.
            retry=Retry(NoBackoff(), 1, supported_errors=(Disconnected,)),
        )

    async def send(self, queue: str, order_id: str, signed: Mapping[str, str]) -> None:
        """Put one signed order on a worker's queue.

        Raises:
            EngineUnavailable: the order may or may not have arrived.
        """
        await self._call(self._redis.lpush(queue, message(order_id, signed, queue)))

    async def forget(self, queue: str) -> None:
        """Throw away what still lies in the queue of a worker that is gone."""
        await self._call(self._redis.delete(queue))

    async def server_id(self) -> str:
        """Names this run of the Redis server; it changes when Redis restarts."""
        try:
            told = await self._call(self._redis.info("server"))
            return str(told["run_id"])
        except (ResponseError, KeyError):
            # The stand-in has no INFO, and forgets everything when it ends.
            await self._call(self._redis.set(_SERVER, uuid.uuid4().hex, nx=True))
            return str(await self._call(self._redis.get(_SERVER)))

    async def ring(self, worker_ids: Sequence[str]) -> None:
        """Tell workers to ask what changed; losing it only costs time."""
        names = [f"{worker_id}@corral" for worker_id in worker_ids]
        try:
            await asyncio.wait_for(
                asyncio.to_thread(self._app.control.broadcast, BELL, destination=names),
                self._timeout_s,
            )
        except (RedisError, OSError, TimeoutError) as e:
            raise EngineUnavailable(f"Redis does not answer: {e}") from e

    async def grant(self, node_id: str, password: str) -> str | None:
        """Make (or make again) the Redis user that reaches this node's queues only.

        None when this Redis has no access lists.
        """
        user = f"node-{node_id}"
        box = f"/{self.address.database}"
        rules = [
            "reset", "on", f">{password}", "resetchannels",
            f"~w.{node_id}.*", f"~unacked*.{node_id}", "~_kombu.binding*",
            "~*.celery.pidbox*", "~*.reply.celery.pidbox*", "~celeryev*",
            f"&{box}.celery.pidbox", f"&{box}.celeryev*",
            "+@read", "+@write", "+@connection", "+@transaction", "+@pubsub",
            "+@scripting", "-@dangerous", "+info", "+time",
        ]  # fmt: skip
        try:
            command = ("ACL", "SETUSER", user, *rules)
            await self._call(self._redis.execute_command(*command))  # type: ignore[no-untyped-call]
        except ResponseError:
            return None
        return user

    async def close(self) -> None:
        await self._redis.aclose()
        await asyncio.to_thread(self._app.close)

    async def _call(self, awaitable: Awaitable[Any] | Any) -> Any:
        try:
            return await cast(Awaitable[Any], awaitable)
        except ResponseError:
            raise
        except (RedisError, OSError, TimeoutError) as e:
            raise EngineUnavailable(f"Redis does not answer: {e}") from e
