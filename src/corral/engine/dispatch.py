"""Puts orders on workers' queues, rings bells, and gives nodes their Redis users.

Everything here may fail at any moment; the caller decides what that means.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, cast

import redis.asyncio as aioredis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError, ResponseError
from redis.lock import Lock

from corral.core.redis_version import RedisVersion, told_version
from corral.engine import tunnel
from corral.engine.address import parse_address
from corral.engine.celery_app import BELL, make_app
from corral.engine.envelope import message
from corral.errors import EngineUnavailable

_SERVER = "corral.server"
# All that a worker's Celery says to Redis; tests/security holds it to that. `evalsha`
# runs what the manager has loaded, which is kombu's lock and nothing else.
_COMMANDS = (
    "ping", "hello", "select", "client|setinfo", "client|setname",
    "multi", "exec", "discard", "watch", "unwatch",
    "llen", "brpop", "rpop", "rpush", "lpush", "exists", "del",
    "hget", "hset", "hdel", "zadd", "zrem", "zrange", "sadd", "srem", "smembers",
    "get", "set", "evalsha", "psubscribe", "punsubscribe",
)  # fmt: skip
_LOCK = Lock.LUA_RELEASE_SCRIPT


def _rules(node_id: str, database: int) -> list[str]:
    """What a node's user may do, without its password, on any Redis with users.

    Its own queues, and to hear what is asked of all workers: `celery.pidbox`.
    """
    keys = (
        f"w.{node_id}.*", f"unacked.{node_id}", f"unacked_*.{node_id}",
        f"_kombu.binding.w.{node_id}.*", f"_kombu.binding_permanent.w.{node_id}.*",
        "_kombu.binding.celery.pidbox", "_kombu.binding_permanent.celery.pidbox",
    )  # fmt: skip
    return [
        *(f"~{key}" for key in keys),
        "resetchannels", f"&/{database}.celery.pidbox",
        *(f"+{command}" for command in _COMMANDS),
    ]  # fmt: skip


def _narrow(database: int) -> list[str]:
    """What else: to answer, into lists that it cannot read, and to tell events."""
    return [
        "%R~_kombu.binding.reply.celery.pidbox",
        "(+lpush %W~*.reply.celery.pidbox)",
        f"(+publish &/{database}.celeryev*)",
        "(+llen +del ~*@corral.celery.pidbox*)",
    ]


# The same for servers before 7.0, which know one set of rights for all keys; who tells
# events there could also ask others, so nobody tells any.
_BROAD = (
    "~_kombu.binding.reply.celery.pidbox",
    "~*.reply.celery.pidbox",
    "~*@corral.celery.pidbox*",
)


def node_user(node_id: str) -> str:
    """What Redis calls a node."""
    return f"node-{node_id}"


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
        user = node_user(node_id)
        number = self.address.database
        base = ("reset", "on", f">{password}", *_rules(node_id, number))
        for more in (_narrow(number), _BROAD):
            try:
                # First: a server that started anew has forgotten it, and a node that
                # finds it missing may not load it.
                await self._call(self._redis.script_load(_LOCK))
                await self._command("ACL", "SETUSER", user, *base, *more)
            except ResponseError:
                continue
            return user
        return None

    async def revoke(self, node_id: str) -> None:
        """End all that a node has here: its connections, and its user."""
        user = node_user(node_id)
        # In this order: nothing of it may come back in between.
        for command in (
            ("ACL", "SETUSER", user, "reset"),
            ("CLIENT", "KILL", "USER", user),
            ("ACL", "DELUSER", user),
        ):
            # One that is not there, or a server without users: nothing to end.
            with contextlib.suppress(ResponseError):
                await self._command(*command)

    async def open(self, node_id: str, password: str) -> tunnel.EngineLink:
        """A connection that is the node's user's, for its bytes to be carried over.

        Raises:
            Forbidden: this Redis lets anybody in.
        """
        return await tunnel.open_link(self.address, node_user(node_id), password)

    async def version(self) -> RedisVersion | None:
        """What answers there; None where we are not told."""
        try:
            told = await self._call(self._redis.info("server"))
        except ResponseError:
            return None
        found = told_version(told)
        return found if found.is_known else None

    async def close(self) -> None:
        await self._redis.aclose()
        await asyncio.to_thread(self._app.close)

    async def _command(self, *words: str) -> None:
        await self._call(self._redis.execute_command(*words))  # type: ignore[no-untyped-call]

    async def _call(self, awaitable: Awaitable[Any] | Any) -> Any:
        try:
            return await cast(Awaitable[Any], awaitable)
        except ResponseError:
            raise
        except (RedisError, OSError, TimeoutError) as e:
            raise EngineUnavailable(f"Redis does not answer: {e}") from e
