"""Workers and nodes that die: noticed, and their work goes elsewhere."""

from __future__ import annotations

import pytest

from tests.unit.api.world import (
    FakeNode,
    FakeWorker,
    World,
    declared,
    fault,
    quiet,
    said,
)


async def second(world: World) -> FakeWorker:
    node = await world.node(declared("two", "echo"))
    return await node.workers["two"].start()


@pytest.mark.spec("C25", "C48")
async def test_the_tasks_of_a_dead_worker_run_on_another(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    worker.take_one()
    other = await second(world)
    await worker.node.beat(worker.word(state="lost", pid=None))
    item = other.take_one()
    assert (item["task_id"], item["attempt"]) == (task_id, 2)
    task = await world.read.task(task_id)
    assert (task["losses"], task["tries"]) == (0, 0), "it was not seen running"
    await other.finish(item, "ok")
    assert (await world.read.task(task_id))["result"] == "ok"


async def test_a_worker_that_died_under_a_running_task_counts_as_a_loss(
    world: World,
) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    await worker.begin(worker.take_one())
    await worker.node.beat(worker.word(state="lost", pid=None))
    task = await world.read.task(task_id)
    assert (task["status"], task["losses"], task["tries"]) == ("queued", 1, 0)
    assert task["attempts"][0]["outcome"] == "lost"
    assert worker.id in task["attempts"][0]["error"]["message"]


async def test_a_task_that_kills_three_workers_is_poison(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit(retries=10)
    for loss in (1, 2, 3):
        await worker.begin(worker.take_one())
        await worker.node.beat(worker.word(state="lost", pid=None))
        assert (await world.read.task(task_id))["losses"] == loss
        await worker.register(pid=4000 + loss)
        said(await worker.report(state="ready"))
        await world.step(5, worker.node)
    task = await world.read.task(task_id)
    assert (task["status"], task["dead_letter"]) == ("failed", "poison")
    assert task["error"]["kind"] == "poison"
    assert [a["outcome"] for a in task["attempts"]] == ["lost"] * 3
    assert worker.take() == []


async def test_an_idle_worker_whose_node_was_lost_and_came_back_is_told_to_begin_anew(
    world: World,
) -> None:
    worker = await world.worker("echo")
    await world.step(30)
    assert (await world.read.ask("/nodes"))["nodes"][0]["status"] == "offline"
    world.engine.rung.clear()
    # It has nothing to report, so that nobody tells it by way of an answer.
    await worker.node.beat(worker.word())
    await world.step(2, worker.node)
    assert worker.id in world.engine.rung
    fault(await worker.report(), 409, "conflict")
    await worker.register(pid=4001)
    said(await worker.report(state="ready"))
    await worker.node.beat(worker.word())
    world.engine.rung.clear()
    await world.step(2, worker.node)
    assert world.engine.rung == []
    task_id = await world.submit.submit()
    assert worker.take_one()["task_id"] == task_id


async def test_a_restarted_worker_takes_new_orders_only(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    item = worker.take_one()
    await worker.register(pid=4001)
    answer = await worker.node.beat(worker.word(item))
    assert answer["drop"] == [[task_id, 1]]
    said(await worker.report(state="ready"))
    assert worker.take_one()["attempt"] == 2


async def test_a_stopped_worker_gives_its_tasks_back(world: World) -> None:
    worker = await world.worker("echo")
    other = await second(world)
    task_id = await world.submit.submit()
    items = worker.take() or other.take()
    holder = items[0]
    owner = (
        worker if (await world.read.task(task_id))["worker_id"] == worker.id else other
    )
    rest = other if owner is worker else worker
    await world.operate.delete(f"/workers/{owner.id}")
    await quiet()
    item = rest.take_one()
    assert (item["task_id"], item["attempt"]) == (holder["task_id"], 2)
    fault(await owner.report(), 404, "worker_not_found")


async def test_a_stopped_workers_queue_is_emptied(world: World) -> None:
    worker = await world.worker("echo")
    await world.submit.submit()
    assert world.engine.sent[worker.queue]
    await world.operate.delete(f"/workers/{worker.id}")
    assert worker.queue not in world.engine.sent


async def test_a_worker_its_agent_no_longer_lists_is_gone(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    worker.take_one()
    await worker.node.beat()
    task = await world.read.task(task_id)
    assert (task["status"], task["attempt"]) == ("queued", 2)
    assert task["waiting"]["reason"] == "no_worker"


@pytest.mark.spec("C47", "A5")
@pytest.mark.spec("C36")
async def test_a_silent_node_is_suspect_at_15_seconds_and_lost_at_20(
    world: World,
) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    worker.take_one()

    async def status() -> str:
        return str((await world.read.ask(f"/nodes/{worker.node.id}"))["status"])

    await world.step(14)
    assert await status() == "online"
    await world.step(1)
    assert await status() == "suspect"
    assert (await world.read.task(task_id))["state"] == "assigned"
    await world.step(4)
    assert await status() == "suspect"
    await world.step(1)
    assert await status() == "offline"
    task = await world.read.task(task_id)
    assert (task["status"], task["attempt"]) == ("queued", 2)
    kinds = [e["event_type"] for e in (await world.read.ask("/events"))["events"]]
    assert "node_lost" in kinds


@pytest.mark.spec("C48")
async def test_the_tasks_of_a_lost_node_run_on_another(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    worker.take_one()
    other = await second(world)
    await world.step(20, other.node)
    assert other.take_one()["task_id"] == task_id


async def test_a_suspect_node_that_beats_again_keeps_its_work(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    item = worker.take_one()
    await world.step(16)
    await worker.node.beat(worker.word(item))
    await world.step(10, worker.node)
    await worker.finish(item, "kept")
    assert (await world.read.task(task_id))["result"] == "kept"


async def test_a_lost_node_that_comes_back_must_drop_what_it_held(
    world: World,
) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    item = worker.take_one()
    await world.step(20)
    answer = await worker.node.beat(worker.word(item))
    assert answer["drop"] == [[task_id, 1]]
    fault(await worker.report(), 409, "conflict")
    told = await world.read.ask(f"/nodes/{worker.node.id}")
    assert told["status"] == "online"
    await worker.register(pid=4001)
    said(await worker.report(state="ready"))
    assert worker.take_one()["attempt"] == 2


async def test_a_beat_of_a_former_epoch_is_refused(world: World) -> None:
    node = await world.node(declared("one"))
    await node.register(declared("one"))
    node.epoch -= 1
    error = fault(await node.try_beat(), 409, "conflict")
    assert error["details"] == {"epoch": 2}


async def test_a_new_registration_gives_the_old_ones_work_back_at_once(
    world: World,
) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    worker.take_one()
    await worker.node.register(declared("one"))
    task = await world.read.task(task_id)
    assert (task["status"], task["attempt"]) == ("queued", 2)


async def test_an_order_that_never_arrived_is_given_again_after_two_beats(
    world: World,
) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    worker.take_one()  # and lost on its way
    await world.step(5, worker.node)
    assert worker.take() == []
    await world.step(5, worker.node)
    item = worker.take_one()
    assert (item["task_id"], item["attempt"]) == (task_id, 2)
    assert (await world.read.task(task_id))["losses"] == 0


async def test_an_order_that_is_held_is_left_alone(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    item = worker.take_one()
    for _ in range(10):
        world.clock.step(5)
        answer = await worker.node.beat(worker.word(item, state="busy"))
        assert answer["drop"] == []
    assert (await world.read.task(task_id))["attempt"] == 1


async def test_a_worker_told_an_old_word_of_itself_is_not_blamed(world: World) -> None:
    worker = await world.worker("echo")
    await world.submit.submit()
    worker.take_one()
    for _ in range(3):
        world.clock.step(2)
        await worker.node.beat(worker.word(age_s=30))
    assert worker.take() == []


async def test_what_a_worker_holds_and_should_not_is_dropped(world: World) -> None:
    worker = await world.worker("echo")
    stray = {"task_id": "never-seen", "attempt": 3}
    answer = await worker.node.beat(worker.word(stray))
    assert answer["drop"] == [["never-seen", 3]]


async def test_beats_for_another_nodes_worker_are_ignored(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    worker.take_one()
    other = await world.node()
    await other.beat(worker.word(state="lost", pid=None))
    assert (await world.read.task(task_id))["attempt"] == 1


# mass loss -------------------------------------------------------------------


async def many(world: World, count: int) -> list[FakeNode]:
    return [await world.node(declared("w", "echo")) for _ in range(count)]


async def statuses(world: World) -> list[str]:
    nodes = (await world.read.ask("/nodes"))["nodes"]
    return sorted(node["status"] for node in nodes)


async def test_when_most_of_four_nodes_vanish_together_nothing_is_rescheduled(
    world: World,
) -> None:
    nodes = await many(world, 4)
    worker = await nodes[0].workers["w"].start()
    task_id = await world.submit.submit()
    worker.take_one()
    await world.step(25, nodes[3])
    assert "offline" not in await statuses(world)
    assert (await world.read.task(task_id))["attempt"] == 1
    events = (await world.read.ask("/events"))["events"]
    (alarm,) = [e for e in events if e["event_type"] == "mass_loss"]
    assert alarm["severity"] == "critical"
    await world.step(5, *nodes[1:])
    await world.step(25, *nodes[1:])
    assert (await statuses(world)).count("offline") == 1
    assert (await world.read.task(task_id))["attempt"] == 2


async def test_half_of_four_nodes_may_be_lost(world: World) -> None:
    nodes = await many(world, 4)
    await world.step(25, *nodes[2:])
    assert (await statuses(world)).count("offline") == 2


async def test_all_of_three_nodes_may_be_lost(world: World) -> None:
    await many(world, 3)
    await world.step(25)
    assert await statuses(world) == ["offline"] * 3
