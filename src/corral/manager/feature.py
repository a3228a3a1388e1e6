"""The base of every loop: never dies of an error, always says so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from corral.errors import CorralError, NotLeader

log = logging.getLogger(__name__)


class Loop:
    """Calls `step` every `period_s`; errors are logged and the loop goes on.

    A lost leadership ends it: `on_deposed` is told once.
    """

    def __init__(
        self,
        name: str,
        period_s: float,
        step: Callable[[], Awaitable[None]],
        on_deposed: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self._period_s = period_s
        self._step = step
        self._on_deposed = on_deposed

    async def run(
        self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        while True:
            try:
                await self._step()
            except NotLeader:
                self._on_deposed()
                return
            except CorralError as e:
                log.warning("%s: %s", self.name, e.message)
            except Exception:
                log.exception("%s failed; it goes on", self.name)
            await sleep(self._period_s)
