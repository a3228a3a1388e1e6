"""A loop of the manager after an error: it says so, rests, and goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from corral.manager.feature import Loop
from tests.unit.api.insight.test_metrics import SAMPLE, known, metrics
from tests.unit.api.world import World


class Rests:
    """The time between two steps: as many as a test lets pass."""

    def __init__(self) -> None:
        self.lengths: list[float] = []
        self._begun = asyncio.Semaphore(0)
        self._over = asyncio.Semaphore(0)

    async def __call__(self, seconds: float) -> None:
        self.lengths.append(seconds)
        self._begun.release()
        await self._over.acquire()

    async def reached(self) -> None:
        async with asyncio.timeout(60):
            await self._begun.acquire()

    def end(self) -> None:
        self._over.release()


@asynccontextmanager
async def running(loop: Loop, rests: Rests) -> AsyncIterator[None]:
    task = asyncio.create_task(loop.run(rests))
    try:
        await rests.reached()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.spec("A12")
async def test_monitoring_goes_on_after_the_store_was_away(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    node, rests = await world.node(), Rests()
    await node.beat(sample={**SAMPLE, "cpu_percent": 10.0})
    world.store.is_down = True
    async with running(Loop("monitor", 1.0, world.manager.nodes.readings.step), rests):
        (said,) = [r for r in caplog.records if r.getMessage().startswith("monitor:")]
        assert said.levelno == logging.WARNING
        world.store.is_down = False
        await node.beat(sample={**SAMPLE, "cpu_percent": 30.0})
        rests.end()
        await rests.reached()
    assert rests.lengths == [1.0, 1.0]
    world.clock.step(30)
    found = await metrics(world, node, **{"from": "-10m", "step": 60})
    assert known(found["series"]["cpu_percent"], "maximum") == [30.0]


@pytest.mark.spec("A8", "A12")
async def test_a_fault_of_our_own_is_told_with_its_traceback_and_not_swallowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[int] = []

    async def step() -> None:
        done.append(len(done))
        if len(done) == 1:
            raise ValueError("nobody thought of this")

    rests = Rests()
    async with running(Loop("odd", 2.0, step), rests):
        (said,) = [r for r in caplog.records if r.exc_info]
        assert said.levelno == logging.ERROR
        assert "nobody thought of this" in str(said.exc_info)
        rests.end()
        await rests.reached()
    assert done == [0, 1]
