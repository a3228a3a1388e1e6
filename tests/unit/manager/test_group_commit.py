"""Group commit without timers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from corral.errors import StoreUnavailable
from corral.manager.group_commit import GroupCommit
from tests.unit.api.world import World, quiet


class Slow:
    """A commit that waits to be let through."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()

    async def __call__(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        await self.gate.wait()
        if 13 in items:
            raise StoreUnavailable("unlucky")
        return [item * 10 for item in items]


async def test_what_arrives_during_a_commit_joins_the_next() -> None:
    slow = Slow()
    group: GroupCommit[int, int] = GroupCommit(slow)
    puts = [asyncio.create_task(group.put(1))]
    await quiet(5)
    puts += [asyncio.create_task(group.put(n)) for n in (2, 3, 4)]
    await quiet(5)
    assert slow.batches == [[1]]
    slow.gate.set()
    assert await asyncio.gather(*puts) == [10, 20, 30, 40]
    assert slow.batches == [[1], [2, 3, 4]]


async def test_a_failed_commit_fails_its_own_batch_only() -> None:
    slow = Slow()
    group: GroupCommit[int, int] = GroupCommit(slow)
    first = asyncio.create_task(group.put(13))
    await quiet(5)
    second = asyncio.create_task(group.put(2))
    slow.gate.set()
    with pytest.raises(StoreUnavailable):
        await first
    assert await second == 20


async def test_a_caller_that_gives_up_does_not_hurt_its_batch() -> None:
    slow = Slow()
    group: GroupCommit[int, int] = GroupCommit(slow)
    puts = [asyncio.create_task(group.put(n)) for n in (1, 2)]
    await quiet(5)
    puts[0].cancel()
    slow.gate.set()
    assert await puts[1] == 20


async def test_submits_of_many_callers_share_a_commit(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    reached, release = world.store.hold("insert_tasks")
    submits = [asyncio.create_task(world.submit.submit())]
    await reached.wait()
    submits += [asyncio.create_task(world.submit.submit()) for _ in range(20)]
    await quiet()
    release.set()
    ids = await asyncio.gather(*submits)
    assert len(set(ids)) == 21
    sizes = [rows for name, rows in world.store.calls if name == "insert_tasks"]
    assert sizes == [1, 20]


async def test_a_caller_is_told_accepted_only_after_the_commit(world: World) -> None:
    worker = await world.worker("echo")
    reached, release = world.store.hold("insert_tasks")
    submit = asyncio.create_task(world.submit.submit())
    await reached.wait()
    await quiet()
    assert not submit.done()
    assert worker.take() == [], "and nothing is sent before it"
    release.set()
    assert worker.take() == []
    task_id = await submit
    assert worker.take_one()["task_id"] == task_id
