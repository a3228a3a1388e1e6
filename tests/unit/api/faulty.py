"""A store that can be cut off, held up, or lose its answer; the rest is the real twin.

What it does is what a database does to its clients: no answer (`is_down`), an answer
lost after the commit (`loses_answer`), a slow commit (`hold`, `dice`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from corral.errors import StoreUnavailable
from tests.twins.store import MemoryStore

Seam = TypeVar("Seam")


class FaultyStore:
    def __init__(self, inner: MemoryStore) -> None:
        self.inner = inner
        self.is_down = False
        self.calls: list[tuple[str, int]] = []
        self.dice: random.Random | None = None
        """Given some, calls take turns of any length before and after their work."""
        self._loses: set[str] = set()
        self._left: dict[str, int] = {}
        self._gates: dict[str, asyncio.Event] = {}
        self._reached: dict[str, asyncio.Event] = {}
        self.tasks = self._faulty(inner.tasks)
        self.output = self._faulty(inner.output)
        self.registry = self._faulty(inner.registry)
        self.models = self._faulty(inner.models)
        self.queues = self._faulty(inner.queues)
        self.events = self._faulty(inner.events)
        self.metrics = self._faulty(inner.metrics)
        self.access = self._faulty(inner.access)
        self.results = self._faulty(inner.results)
        self.open = self._through("open", inner.open)
        self.close = self._through("close", inner.close)
        self.ping = self._through("ping", inner.ping)
        self.take_lead = self._through("take_lead", inner.take_lead)
        self.term = self._through("term", inner.term)
        self.prune = self._through("prune", inner.prune)
        self.clear = self._through("clear", inner.clear)

    def loses_answer(self, name: str) -> None:
        """The next call of `name` is carried out, and its caller is told nothing."""
        self._loses.add(name)

    def fails_after(self, name: str, count: int) -> None:
        """`count` calls of `name` pass; with the next the store goes down."""
        self._left[name] = count

    def forgive(self) -> None:
        """From now on every call is carried out and answered."""
        self._loses.clear()
        self._left.clear()

    def hold(self, name: str) -> tuple[asyncio.Event, asyncio.Event]:
        """Calls of `name` set the first event and wait for the second, then go on."""
        self._reached[name], self._gates[name] = asyncio.Event(), asyncio.Event()
        return self._reached[name], self._gates[name]

    def _faulty(self, seam: Seam) -> Seam:
        names = [name for name in dir(seam) if not name.startswith("_")]
        calls = {name: self._through(name, getattr(seam, name)) for name in names}
        return cast(Seam, SimpleNamespace(**calls))

    def _through(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def through(*args: Any, **more: Any) -> Any:
            rows = next((len(a) for a in args if isinstance(a, list | tuple)), 0)
            self.calls.append((name, rows))
            self._count(name)
            self._check()
            if (gate := self._gates.get(name)) is not None:
                self._reached[name].set()
                await gate.wait()
                self._gates.pop(name, None)
            await self._dawdle()
            self._check()
            result = await call(*args, **more)
            await self._dawdle()
            if name in self._loses:
                self._loses.discard(name)
                raise StoreUnavailable("the answer was lost on its way")
            return result

        return through

    async def _dawdle(self) -> None:
        for _ in range(self.dice.randint(0, 20) if self.dice else 0):
            await asyncio.sleep(0)

    def _count(self, name: str) -> None:
        if name in self._left:
            self._left[name] -= 1
            if self._left[name] < 0:
                del self._left[name]
                self.is_down = True

    def _check(self) -> None:
        if self.is_down:
            raise StoreUnavailable("the store is switched off")
