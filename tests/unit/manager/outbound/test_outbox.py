"""The outbox: windows, backoff and what breaks; whoever is told is made up."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

import pytest

from corral.core.backoff import Backoff
from corral.errors import NotLeader, StoreUnavailable
from corral.manager.outbound.outbox import BROKEN_S, Outbox
from tests.unit.api.world import StepClock, quiet

BACKOFF = Backoff(base_s=10.0, cap_s=40.0, jitter=0.0)


class Outside:
    """Takes "receiver item" once its gate is open; `answer` may break or refuse it."""

    def __init__(self, *, window: int = 2, most_calls: int = 4) -> None:
        self.clock = StepClock()
        self.gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.tries: list[tuple[str, int]] = []
        self.answer: Callable[[str], bool] = lambda item: True
        self.outbox: Outbox[str] = Outbox(
            self.clock, BACKOFF, self._send, window=window, most_calls=most_calls
        )

    async def _send(self, item: str, number: int, delay_s: float) -> str | None:
        self.tries.append((item, number))
        await self.gates[item.split()[0]].wait()
        return None if self.answer(item) else item

    def put(self, *items: str) -> None:
        for item in items:
            self.outbox.put(item, item.split()[0], item)

    async def go(self, seconds: float = 0.0) -> None:
        self.clock.step(seconds)
        self.outbox.begin()
        await quiet(20)

    @property
    def sent(self) -> list[str]:
        return [item for item, _ in self.tries]


async def test_a_receiver_that_hangs_holds_up_nobody_else() -> None:
    outside = Outside()
    outside.gates["good"].set()
    outside.put("lame 1", "lame 2", "lame 3", "good 1", "good 2", "good 3")
    await outside.go()
    outside.gates["lame"].set()
    await outside.outbox.settled()
    assert outside.sent.index("lame 3") > outside.sent.index("good 2")
    assert sorted(outside.sent) == sorted(
        [f"{w} {n}" for w in ("lame", "good") for n in (1, 2, 3)]
    )
    assert outside.outbox.items() == []


async def test_there_are_no_more_calls_at_once_than_the_window_has() -> None:
    outside = Outside(window=2, most_calls=3)
    outside.put(*(f"{name} {n}" for name in "ab" for n in range(5)))
    await outside.go()
    assert len(outside.sent) == 3
    assert sum(item.startswith("a") for item in outside.sent) <= 2
    await outside.outbox.close()


async def test_what_fails_is_sent_again_later_and_later() -> None:
    outside = Outside()
    outside.gates["a"].set()
    outside.answer = lambda item: False
    outside.put("a 1")
    for seconds in (0.0, 9.9, 0.2, 19.0, 1.1, 39.0, 1.1, 39.0, 1.1):
        await outside.go(seconds)
    assert outside.tries == [("a 1", number) for number in (1, 2, 3, 4, 5)]


async def test_what_is_put_during_a_call_is_sent_after_it_and_no_sooner() -> None:
    outside = Outside()
    outside.put("a 1")
    await outside.go()
    outside.put("a 1")
    await outside.go()
    assert len(outside.sent) == 1, "one call at a time for one key"
    outside.gates["a"].set()
    await outside.outbox.settled()
    assert outside.sent == ["a 1", "a 1"]
    outside.answer = lambda item: False
    outside.gates["a"].clear()
    outside.put("a 1")
    await outside.go()
    outside.put("a 1")
    outside.gates["a"].set()
    await outside.outbox.settled()
    await outside.go()
    assert len(outside.sent) == 3, "it has just failed"
    await outside.go(10.1)
    assert outside.tries[-1] == ("a 1", 2)


async def test_a_store_that_is_away_counts_against_nobody() -> None:
    outside = Outside()
    outside.gates["a"].set()

    def away(item: str) -> bool:
        raise StoreUnavailable("away")

    outside.answer = away
    outside.put("a 1")
    await outside.go()
    outside.answer = lambda item: True
    await outside.go(BROKEN_S + 0.1)
    assert outside.tries == [("a 1", 1), ("a 1", 1)]


async def test_what_breaks_is_told_and_holds_up_nothing_behind_it() -> None:
    outside = Outside(window=1)
    outside.gates["a"].set()

    def deposed(item: str) -> bool:
        if item == "a 1":
            raise NotLeader("another leads")
        return True

    outside.answer = deposed
    outside.put("a 1", "a 2", "a 3")
    await outside.go()
    with pytest.raises(NotLeader):
        await outside.outbox.settled()
    assert outside.sent == ["a 1", "a 2", "a 3"]
    assert outside.outbox.items() == ["a 1"], "nothing is lost"


async def test_a_rest_ends_when_something_is_due_or_put() -> None:
    outside = Outside()
    assert not await outside.outbox.rest(0.001)
    outside.outbox.put("a 1", "a", "a 1", after_s=10)
    assert await outside.outbox.rest(), "there is news"
    outside.outbox.begin()
    assert not await outside.outbox.rest(0.001)
    outside.clock.step(11)
    assert await outside.outbox.rest()
