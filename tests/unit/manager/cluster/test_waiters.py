"""Callers that wait: for tasks to end, for news, for the manager to stop."""

from __future__ import annotations

import asyncio

from corral.manager.cluster.waiters import LongPoll, TaskFollowers, Waiters
from tests.unit.api.world import World, quiet


class Page:
    """What is looked at, and how often it was."""

    def __init__(self) -> None:
        self.lines = 0
        self.looks = 0

    async def look(self) -> int:
        self.looks += 1
        return self.lines


async def test_a_poll_is_answered_by_news_and_looks_only_when_it_is_rung() -> None:
    bell, page = LongPoll(), Page()
    polls = [asyncio.create_task(bell.poll(page.look, bool, 60)) for _ in range(3)]
    await quiet(5)
    bell.ring()
    await quiet(5)
    assert page.looks == 6, "once each, and once more for a ring without news"
    page.lines = 7
    await quiet(5)
    assert page.looks == 6
    bell.ring()
    assert await asyncio.gather(*polls) == [7, 7, 7]


async def test_what_comes_while_a_poll_looks_is_not_missed() -> None:
    bell, page = LongPoll(), Page()

    async def look() -> int:
        found = page.lines
        page.lines = 1
        bell.ring()
        await quiet(3)
        return found

    assert await bell.poll(look, bool, 60) == 1


async def test_a_poll_ends_with_its_time_and_looks_by_itself_where_told() -> None:
    bell, page = LongPoll(), Page()
    assert await bell.poll(page.look, bool, 0.001) == 0
    assert page.looks == 2, "before the wait, and after it"
    assert await bell.poll(page.look, lambda _: page.looks > 5, 60, 0.001) == 0


async def test_followers_of_a_manager_that_stops_wait_no_more_nor_begin_to() -> None:
    followers, page = TaskFollowers(), Page()
    waiting = asyncio.create_task(followers.of("t").poll(page.look, bool, 60))
    await quiet(5)
    followers.release()
    await waiting
    await followers.of("another").poll(page.look, bool, 60)
    assert not followers._by_task, "nothing is kept of those who have gone"


async def test_waiting_ends_when_the_last_of_many_has_ended() -> None:
    waiters, live = Waiters(), {"a", "b"}
    wait = asyncio.create_task(waiters.wait(["a", "b", "c"], live.__contains__, 60))
    await quiet(5)
    live.discard("a")
    waiters.ended("a")
    await quiet(5)
    assert not wait.done()
    waiters.ended("b")
    await wait


async def test_waiting_ends_with_its_time_and_leaves_nothing_behind() -> None:
    waiters = Waiters()
    await waiters.wait(["a"], lambda _: True, 0.001)
    assert waiters._by_task == {}


async def test_a_manager_that_stops_lets_waiting_callers_go(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    task_id = await world.submit.submit()
    poll = asyncio.create_task(world.read.ask(f"/tasks/{task_id}", wait=60))
    await quiet()
    world.manager.release()
    assert (await poll)["status"] == "queued"
