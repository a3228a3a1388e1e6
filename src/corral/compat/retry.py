"""Takes a step through outages of Redis and of the manager, however long they last."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from itertools import count
from typing import NoReturn, TypeVar

from redis.exceptions import AuthenticationError, RedisError

from corral.core.backoff import Backoff
from corral.errors import RateLimited, SettingsError, Unavailable

T = TypeVar("T")
_BACKOFF = Backoff(0.1, 5.0)
_log = logging.getLogger(__name__)


async def insist(step: Callable[[], Awaitable[T]]) -> T:
    """What `step` returns, once it does; what passes by itself is waited out.

    Raises:
        SettingsError: a password is wrong, which does not pass.
        CorralError: the manager refuses, which does not pass either.
    """
    asked = asyncio.current_task()
    for failures in count(1):
        # A library below may swallow a request to stop, or make an outage of it.
        if asked is not None and asked.cancelling():
            raise asyncio.CancelledError
        try:
            return await step()
        except AuthenticationError as error:
            raise SettingsError(f"Redis lets nobody in: {error}") from None
        except (RedisError, Unavailable, RateLimited, OSError) as error:
            delay_s = _BACKOFF.delay_s(failures, random.random())
            said = str(error) or type(error).__name__
            _log.warning("an outage: %s; again in %.1f s", said, delay_s)
            await asyncio.sleep(delay_s)
    raise AssertionError("counting ended")


async def persist(step: Callable[[], Awaitable[None]]) -> NoReturn:
    """Take `step` again and again."""
    while True:
        await insist(step)
