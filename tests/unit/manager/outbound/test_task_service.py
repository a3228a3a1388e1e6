"""What an outside task service is told, over real sockets, whatever befalls it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from corral.core.backoff import Backoff
from corral.manager.outbound.task_service import (
    GIVE_UP,
    WINDOW,
    TaskService,
    TaskServiceConfig,
)
from tests.task_service import TaskServiceStandIn, task_service
from tests.unit.api.world import CONFIG, World, running

BACKOFF = Backoff(base_s=1.0, cap_s=30.0, jitter=0.0)


@pytest.fixture
def service() -> Iterator[TaskServiceStandIn]:
    with task_service() as made:
        yield made


def config_of(service: TaskServiceStandIn, **more: Any) -> TaskServiceConfig:
    return TaskServiceConfig(service.url, share=1.0, backoff=BACKOFF, **more)


@asynccontextmanager
async def follower(
    world: World, service: TaskServiceStandIn, **more: Any
) -> AsyncIterator[TaskService]:
    await world.operate.tell("/job-types", {"name": "echo"})
    made = TaskService(world.manager.ctx, config_of(service, **more))
    await made.open()
    yield made
    await made.close()


async def test_each_status_of_a_task_is_told_in_its_order(
    world: World, service: TaskServiceStandIn
) -> None:
    async with follower(world, service, key="secret") as neighbour:
        task_id = await world.submit.submit(task_id="theirs")
        await neighbour.step()
        worker = await world.worker()
        await world.step(1, worker.node)
        item = worker.take_one()
        await neighbour.step()
        await worker.begin(item)
        await neighbour.step()
        await worker.finish(item, {"slept": 1})
        await neighbour.step()
        await neighbour.step()
    assert service.statuses(task_id) == ["queued", "queued", "running", "completed"]
    first, placed, runs, ended = [body for _, body in service.told]
    assert first["worker_id"] is None
    assert placed["worker_id"] == runs["worker_id"] == worker.id
    assert set(runs) == {"status", "worker_id", "started_at", "completed_at"}
    assert runs["started_at"].endswith("Z")
    assert ended["completed_at"]
    assert ended["result"] == {"slept": 1}
    assert service.keys == {"Bearer secret"}


async def test_why_a_task_failed_is_told(
    world: World, service: TaskServiceStandIn
) -> None:
    async with follower(world, service) as neighbour:
        worker = await world.worker()
        failed = await world.submit.submit()
        await worker.fail(worker.take_one(), "no such file")
        cancelled = await world.submit.submit()
        await world.submit.delete(f"/tasks/{cancelled}")
        await neighbour.step()
    told = service.last(failed)
    assert told["status"] == "failed"
    assert told["error"] == {"kind": "exception", "message": "no such file"}
    assert "result" not in told
    assert service.last(cancelled)["status"] == "cancelled"


async def test_a_task_that_ended_before_its_turn_is_told_once(
    world: World, service: TaskServiceStandIn
) -> None:
    async with follower(world, service) as neighbour:
        worker = await world.worker(concurrency=4)
        ids = [await world.submit.submit() for _ in range(60)]
        while items := worker.take():
            for item in items:
                await worker.finish(item)
        await neighbour.step()
    assert all(service.statuses(id_) == ["completed"] for id_ in ids)
    assert service.most_at_once <= WINDOW


async def test_what_happened_while_the_service_was_down_is_told_when_it_is_back(
    world: World, service: TaskServiceStandIn
) -> None:
    async with follower(world, service) as neighbour:
        worker = await world.worker()
        service.stop()
        ids = [await world.submit.submit() for _ in range(40)]
        for _ in ids:
            await neighbour.step()
            await worker.finish(worker.take_one())
        world.clock.step(100)
        await neighbour.step()
        assert service.told == []
        service.start()
        await neighbour.step()
        assert service.told == [], "it is not asked again before its time"
        world.clock.step(31)
        await neighbour.step()
    assert all(service.statuses(id_) == ["completed"] for id_ in ids)


@pytest.mark.parametrize("status", [500, 503, 429, 401, 302])
async def test_answers_that_pass_are_waited_out(
    world: World, service: TaskServiceStandIn, status: int
) -> None:
    async with follower(world, service) as neighbour:
        service.answer = lambda task_id: status
        ids = [await world.submit.submit(run_after=999) for _ in range(30)]
        for _ in range(GIVE_UP + 2):
            await neighbour.step()
            world.clock.step(31)
        assert len({id_ for id_, _ in service.calls}) == WINDOW, (
            "no more are begun with"
        )
        service.answer = lambda task_id: 200
        await neighbour.step()
    assert all(service.statuses(id_) == ["queued"] for id_ in ids)


async def test_a_task_the_service_cannot_take_holds_up_no_other(
    world: World, service: TaskServiceStandIn
) -> None:
    async with follower(world, service) as neighbour:
        bad = await world.submit.submit(run_after=999)
        service.answer = lambda task_id: 500 if task_id == bad else 200
        for _ in range(GIVE_UP + 2):
            good = await world.submit.submit(run_after=999)
            await neighbour.step()
            assert service.statuses(good) == ["queued"]
            world.clock.step(31)
    assert len([1 for id_, _ in service.calls if id_ == bad]) <= GIVE_UP + 1
    assert await world.store.inner.events.cursor("task_service") == _last_seq(world)


def _last_seq(world: World) -> int:
    return world.store.inner._tables.events[-1].seq


async def test_a_task_the_service_does_not_know_is_not_asked_about_again(
    world: World, service: TaskServiceStandIn
) -> None:
    async with follower(world, service) as neighbour:
        stranger = await world.submit.submit(run_after=999)
        known = await world.submit.submit(run_after=999)
        service.answer = lambda task_id: 404 if task_id == stranger else 200
        for _ in range(3):
            await neighbour.step()
            world.clock.step(31)
    assert service.calls.count((stranger, 404)) == 1
    assert service.statuses(known) == ["queued"]


async def test_a_service_that_does_not_answer_is_asked_again(
    world: World, service: TaskServiceStandIn
) -> None:
    async with follower(world, service, timeout_s=0.2) as neighbour:
        service.gate.clear()
        task_id = await world.submit.submit(run_after=999)
        await neighbour.step()
        service.gate.set()
        await asyncio.to_thread(service.await_status, "queued", task_id)
        # A busy machine may miss so short a timeout more than once.
        for _ in range(20):
            world.clock.step(31)
            await neighbour.step()
            if len(service.statuses(task_id)) > 1:
                break
    assert service.statuses(task_id)[:2] == ["queued", "queued"], "at least once"


async def test_a_restart_loses_no_final_status_and_repeats_no_old_one(
    world: World, service: TaskServiceStandIn
) -> None:
    worker = await world.worker()
    async with follower(world, service) as neighbour:
        old = await world.submit.submit()
        await worker.finish(worker.take_one())
        await neighbour.step()
        service.stop()
        new = await world.submit.submit()
        await neighbour.step()
        await worker.finish(worker.take_one())
        await neighbour.step()
    service.start()
    async with follower(world, service) as again:
        await again.step()
    assert service.statuses(old) == ["completed"]
    assert service.statuses(new) == ["completed"]


async def test_what_runs_already_is_told_after_a_restart(
    world: World, service: TaskServiceStandIn
) -> None:
    worker = await world.worker()
    async with follower(world, service) as neighbour:
        task_id = await world.submit.submit()
        await neighbour.step()
        await worker.begin(worker.take_one())
    async with follower(world, service) as again:
        await again.step()
    assert service.statuses(task_id) == ["queued", "running"]


async def test_tasks_of_before_it_was_set_are_not_told(
    world: World, service: TaskServiceStandIn
) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    before = await world.submit.submit(run_after=999)
    async with follower(world, service) as neighbour:
        after = await world.submit.submit(run_after=999)
        await neighbour.step()
        await world.submit.delete(f"/tasks/{before}")
        await neighbour.step()
    assert service.statuses(after) == ["queued"]
    assert service.statuses(before) == ["cancelled"], "it changed afterwards"


async def test_only_tasks_with_the_label_are_told(
    world: World, service: TaskServiceStandIn
) -> None:
    async with follower(world, service, label=("origin", "portal")) as neighbour:
        worker = await world.worker()
        other = await world.submit.submit(labels={"origin": "else"})
        item = worker.take_one()
        await worker.begin(item)
        await neighbour.step()
        await worker.finish(item)
        theirs = await world.submit.submit(labels={"origin": "portal"})
        await neighbour.step()
    assert service.statuses(other) == []
    assert service.statuses(theirs) == ["queued"]


async def test_a_large_result_is_left_out(
    world: World, service: TaskServiceStandIn
) -> None:
    async with follower(world, service) as neighbour:
        worker = await world.worker()
        task_id = await world.submit.submit()
        await worker.finish(worker.take_one(), "x" * 100_000)
        await neighbour.step()
    assert service.last(task_id)["status"] == "completed"
    assert "result" not in service.last(task_id)


async def test_a_store_that_is_away_loses_nothing(
    world: World, service: TaskServiceStandIn
) -> None:
    async with follower(world, service) as neighbour:
        task_id = await world.submit.submit(run_after=999)
        for call in ("get_tasks", "save_cursor"):
            world.store.loses_answer(call)
            with pytest.raises(Exception, match="lost on its way"):
                await neighbour.step()
        await neighbour.step()
    assert service.statuses(task_id) == ["queued"]


async def test_nobody_waits_for_a_service_that_hangs(
    service: TaskServiceStandIn,
) -> None:
    config = replace(CONFIG, neighbour=config_of(service))
    async with running(config) as world:
        service.gate.clear()
        worker = await world.worker()
        assert world.manager.outbound.task_service is not None
        hanging = asyncio.create_task(world.manager.outbound.task_service.step())
        ids = [f"task-{number}" for number in range(20)]
        for task_id in ids:
            await world.submit.submit(task_id=task_id)
            await worker.finish(worker.take_one())
            assert await world.read.status(task_id) == "completed"
        assert service.told == []
        service.gate.set()
        await hanging
        await world.manager.outbound.task_service.step()
        await asyncio.to_thread(service.await_status, "completed", *ids)
