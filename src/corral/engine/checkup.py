"""One look at a Redis from outside: is it one, may we use it, does it take writes?

It keeps nothing: one key with an end, which it removes itself.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, replace
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    InvalidResponse,
    MaxConnectionsError,
    NoPermissionError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import TimeoutError as Late
from redis.retry import Retry

from corral.core.redis_version import told_version
from corral.engine.address import RedisAddress, parse_address
from corral.errors import EngineUnavailable
from corral.no_answer import NoAnswerReason, no_answer_reason

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class RedisCheckup:
    """What was found; `version` is empty where it does not tell.

    `is_open` where it lets anybody in without a password. `refusal` is why nothing can
    be written, if so; `memory_mb` is what it may use, 0 for as much as there is.
    """

    server: str = "Redis"
    version: str = ""
    is_open: bool = False
    used_mb: float = 0.0
    memory_mb: float = 0.0
    eviction: str = "noeviction"
    is_replica: bool = False
    is_kept: bool = False
    refusal: str | None = None


def place_of(url: str) -> str:
    """Where a Redis is, without user and password."""
    try:
        where = parse_address(url)
    except ValueError:
        return "an address that cannot be read"
    return where.path or f"{where.host}:{where.port}/{where.database}"


def examine(url: str, timeout_s: float = 3.0) -> RedisCheckup:
    """Connect, look, write and remove it again.

    Raises:
        EngineUnavailable: it cannot be reached; `.silence` says why.
    """
    try:
        where = parse_address(url)
        link = _connect(where, timeout_s)
        try:
            link.ping()
            return _look(link, _lets_anybody_in(where, timeout_s))
        finally:
            link.close()
    except (RedisError, OSError, ValueError) as error:
        message = str(error) or type(error).__name__
        raise EngineUnavailable(message, silence=_silence(error)) from error


def _lets_anybody_in(where: RedisAddress, timeout_s: float) -> bool:
    """Asked as a node that shows no password would."""
    with _connect(replace(where, username=None, password=None), timeout_s) as nobody:
        try:
            return bool(nobody.ping())
        except RedisError:
            return False


def _connect(where: RedisAddress, timeout_s: float) -> redis.Redis:
    place: dict[str, Any] = {"host": where.host, "port": where.port, "ssl": where.tls}
    if where.path:
        place = {"unix_socket_path": where.path}
    return redis.Redis(
        **place,
        db=where.database,
        username=where.username,
        password=where.password,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    )


def _look(link: redis.Redis, is_open: bool) -> RedisCheckup:
    try:
        told = link.info()
    except ResponseError:
        # Not every user may ask, and the stand-in has nothing to say.
        return RedisCheckup(is_open=is_open, refusal=_refusal(link))
    version = told_version(told)
    return RedisCheckup(
        version.server,
        version.number,
        is_open,
        float(told.get("used_memory", 0)) / _MIB,
        float(told.get("maxmemory", 0)) / _MIB,
        str(told.get("maxmemory_policy", "noeviction")),
        told.get("role") == "slave",
        bool(told.get("aof_enabled")),
        _refusal(link),
    )


def _refusal(link: redis.Redis) -> str | None:
    name = f"corral.checkup.{uuid.uuid4().hex}"
    try:
        link.set(name, "1", ex=5)
        link.delete(name)
    except RedisError as error:
        return str(error)
    return None


def _silence(error: Exception) -> NoAnswerReason:
    text = str(error)
    if isinstance(error, AuthenticationError | NoPermissionError) or re.search(
        r"NOAUTH|WRONGPASS|without any password|invalid username-password", text
    ):
        return NoAnswerReason.LOGIN
    if isinstance(error, BusyLoadingError):
        return NoAnswerReason.STARTING
    if isinstance(error, MaxConnectionsError) or "max number of clients" in text:
        return NoAnswerReason.CROWDED
    if isinstance(error, InvalidResponse | ResponseError):
        return NoAnswerReason.STRANGER
    found = no_answer_reason(error)
    if found is NoAnswerReason.OTHER and isinstance(error, Late):
        return NoAnswerReason.SLOW
    if found is NoAnswerReason.OTHER and isinstance(error, Disconnected):
        return NoAnswerReason.STRANGER
    return found
