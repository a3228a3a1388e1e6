"""A capability of the manager, and the base of its loops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence

from corral.errors import CorralError, NotLeader
from corral.manager.prometheus import MetricFamily

log = logging.getLogger(__name__)


class Loop:
    """Calls `step` every `period_s`; errors are logged and the loop goes on.

    A lost leadership ends it: who runs it is told once.
    """

    def __init__(
        self, name: str, period_s: float, step: Callable[[], Awaitable[None]]
    ) -> None:
        self.name = name
        self._period_s = period_s
        self._step = step

    async def run(
        self,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_deposed: Callable[[], None] = lambda: None,
    ) -> None:
        while True:
            try:
                await self._step()
            except NotLeader:
                on_deposed()
                return
            except CorralError as e:
                log.warning("%s: %s", self.name, e.message)
            except Exception:
                log.exception("%s failed; it goes on", self.name)
            await sleep(self._period_s)


class Feature:
    """Every hook has a default; a feature lists what it adds, and nobody else does."""

    async def load(self) -> None:
        """Take up what the store has, before anything is planned."""

    async def open(self) -> None:
        """All is loaded: begin what needs others, before the loops run."""

    def loops(self) -> Sequence[Loop]:
        return ()

    def gauges(self) -> Iterator[MetricFamily]:
        """Figures that are looked up when somebody asks."""
        return iter(())

    def release(self) -> None:
        """Answer long polls: the server closes."""

    async def close(self) -> None:
        """Its loops have ended."""
