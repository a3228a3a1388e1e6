"""The lists in a Celery client's Redis: what waits, what is in hand, what is owed.

A message is in exactly one of them at any time and moves in one step of Redis, so that
no death of anybody loses it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from kombu.transport.redis import PRIORITY_STEPS, Channel
from redis.asyncio import Redis

BATCH = 500
BATCH_BYTES = 8 << 20
STEP = 100
BLOCK_S = 5
KEPT = 10_000
PREFIX = "corral.ingress."
PENDING, REFUSED, UNANSWERED, MARK = (
    PREFIX + name for name in ("pending", "refused", "unanswered", "mark")
)


def connect(url: str) -> Redis:
    """A connection pool; a read never outlasts the longest wait by much."""
    plain = _plain_url(url)
    only_tcp = {} if plain.startswith("unix:") else {"socket_keepalive": True}
    return Redis.from_url(
        plain,
        socket_timeout=BLOCK_S + 10.0,
        socket_connect_timeout=5.0,
        health_check_interval=10,
        **only_tcp,
    )


def _plain_url(url: str) -> str:
    """Celery writes a socket as redis+socket://, with its database as virtual_host."""
    parts = urlsplit(url)
    if parts.scheme != "redis+socket":
        return url
    database = parse_qs(parts.query).get("virtual_host", ["0"])[0].strip("/")
    return f"unix://{parts.netloc}{parts.path}?db={database or 0}"


@dataclass(frozen=True, slots=True)
class RefusalAnswer:
    """Why a message was refused, for the one who waits for its result."""

    task_id: str
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class MessageOutcome:
    """What became of one message: to be mirrored, refused, or simply stored."""

    raw: bytes
    task_id: str | None = None
    answer: RefusalAnswer | None = None
    is_refused: bool = False


def lists_of(queues: Iterable[str]) -> Iterator[str]:
    """A queue of Celery is one list per step of priority."""
    for queue in queues:
        for step in PRIORITY_STEPS:
            yield f"{queue}{Channel.sep}{step}" if step else queue


class QueueList:
    """One list of a queue, and what was taken from it and is not yet stored."""

    def __init__(self, redis: Redis, source: str) -> None:
        self._redis = redis
        self.source = source
        self._hand = f"{PREFIX}taken.{source}"

    async def wait(self) -> None:
        """Return when something is in hand, or after a while.

        What is moved is looked up in the hand afterwards: an answer may get lost.
        """
        await self._redis.brpoplpush(self.source, self._hand, BLOCK_S)

    async def take(self) -> list[bytes]:
        """What is in hand, oldest first, filled up from the queue."""
        held, waiting = await self._look()
        while waiting > 0 and len(held) < BATCH and sum(map(len, held)) < BATCH_BYTES:
            step = min(STEP, BATCH - len(held), waiting)
            async with self._redis.pipeline(transaction=False) as pipe:
                for _ in range(step):
                    pipe.rpoplpush(self.source, self._hand)
                held += [raw for raw in await pipe.execute() if raw is not None]
            waiting -= step
        return held

    async def _look(self) -> tuple[list[bytes], int]:
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.lrange(self._hand, -BATCH, -1)
            pipe.llen(self.source)
            held, waiting = await pipe.execute()
        return held[::-1], waiting

    async def settle(self, verdicts: Sequence[MessageOutcome]) -> None:
        """Let go of messages that are stored or refused, all in one step."""
        owed = [v.task_id for v in verdicts if v.task_id is not None]
        refused = [v.raw for v in verdicts if v.is_refused]
        answers = [_write(v.answer) for v in verdicts if v.answer is not None]
        async with self._redis.pipeline(transaction=True) as pipe:
            for verdict in verdicts:
                # Its hints know only text; Redis takes any bytes.
                pipe.lrem(self._hand, -1, verdict.raw)  # type: ignore[arg-type]
            if owed:
                pipe.sadd(PENDING, *owed)
            if refused:
                pipe.lpush(REFUSED, *refused)
                pipe.ltrim(REFUSED, 0, KEPT - 1)
            if answers:
                pipe.lpush(UNANSWERED, *answers)
            await pipe.execute()


class OwedResults:
    """Which results are still owed to clients; the manager knows them as well.

    Where Redis was emptied the mark is gone, and the ledger is written anew.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def owed(self) -> set[str]:
        found = await self._redis.smembers(PENDING)
        return {_bytes(member).decode() for member in found}

    async def is_whole(self) -> bool:
        return bool(await self._redis.exists(MARK))

    async def restore(self, task_ids: Iterable[str]) -> None:
        async with self._redis.pipeline(transaction=True) as pipe:
            if ids := list(task_ids):
                pipe.sadd(PENDING, *ids)
            pipe.set(MARK, "1")
            await pipe.execute()

    async def paid(self, task_ids: Sequence[str]) -> None:
        if task_ids:
            await self._redis.srem(PENDING, *task_ids)

    async def unanswered(self) -> list[RefusalAnswer]:
        found = await self._redis.lrange(UNANSWERED, -BATCH, -1)
        return [RefusalAnswer(*json.loads(text)) for text in found]

    async def answered(self, answers: Sequence[RefusalAnswer]) -> None:
        async with self._redis.pipeline(transaction=True) as pipe:
            for answer in answers:
                pipe.lrem(UNANSWERED, -1, _write(answer))
            await pipe.execute()


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _write(answer: RefusalAnswer) -> str:
    return json.dumps([answer.task_id, answer.code, answer.reason])
