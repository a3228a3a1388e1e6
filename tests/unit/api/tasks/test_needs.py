"""Tasks that say what they need, gangs, and tasks that run out of GPU memory."""

from __future__ import annotations

from typing import Any

import pytest

from corral.sim.history import from_journal
from corral.sim.journal import check, read_journal
from corral.sim.simulation import Simulation
from tests.unit.api.world import (
    Caller,
    FakeWorker,
    Json,
    World,
    declared,
    fault,
    outcome,
    quiet,
    running,
)

SAMPLE = {
    "cpu_count": 8,
    "cpu_percent": 1.0,
    "memory_total_mb": 32768.0,
    "memory_used_mb": 1.0,
    "disk_total_gb": 1.0,
    "disk_used_gb": 0.5,
    "network_rx_bytes": 1,
    "network_tx_bytes": 1,
    "load_1m": 0.0,
    "load_5m": 0.0,
    "load_15m": 0.0,
}


def card(card_id: str, total_mb: float = 24576.0, used_mb: float = 0.0) -> Json:
    return {
        "id": card_id,
        "vendor": "nvidia",
        "name": "Test GPU",
        "memory_total_mb": total_mb,
        "memory_used_mb": used_mb,
        "memory_free_mb": total_mb - used_mb,
        "is_offered": True,
        "memory_offered_mb": total_mb - used_mb,
    }


async def machine(world: World, *cards: Json, slots: int = 4) -> FakeWorker:
    """A machine with these cards, and a worker that has none for itself."""
    node = await world.node(declared("one", "echo", concurrency=slots))
    worker = await node.workers["one"].start()
    await node.beat(worker.word(), gpus=list(cards), sample=SAMPLE)
    return worker


async def shown(world: World, task_id: str) -> Json:
    return await world.read.task(task_id)


async def test_a_task_gets_the_gpus_it_asks_for_and_nobody_else_does(
    world: World,
) -> None:
    worker = await machine(world, card("GPU-a"), card("GPU-b"))
    two = {"gpus": 2, "cpus": 1.5}
    first = await world.submit.submit(resources=two)
    second = await world.submit.submit(resources={"gpus": 0.5})
    item = worker.take_one()
    assert item["task_id"] == first
    given = item["variables"]
    assert given["CORRAL_GPUS"] == given["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    waits = await shown(world, second)
    assert waits["resources"] == {"gpus": 0.5}
    assert waits["waiting"]["reason"] == "in_use"
    assert first in waits["waiting"]["message"]
    await worker.finish(item)
    await quiet()
    assert worker.take_one()["variables"]["CUDA_VISIBLE_DEVICES"] == "GPU-a"
    assert (await shown(world, first))["resources"] == two


async def test_processors_and_memory_are_not_given_twice(world: World) -> None:
    worker = await machine(world)
    for _ in range(3):
        await world.submit.submit(resources={"cpus": 4, "memory_mb": 1000})
    assert len(worker.take()) == 2
    large = await world.submit.submit(resources={"memory_mb": 65536})
    waits = (await shown(world, large))["waiting"]
    assert waits["reason"] == "too_little"
    assert "32.0 GiB of memory short" in waits["message"]


@pytest.mark.spec("C19")
async def test_memory_that_others_use_is_not_given_out(world: World) -> None:
    worker = await machine(world, card("GPU-a", used_mb=20000.0))
    task = await world.submit.submit(resources={"gpu_memory_mb": 8000})
    assert (await shown(world, task))["waiting"]["reason"] == "foreign_memory"
    await worker.node.beat(worker.word(), gpus=[card("GPU-a")], sample=SAMPLE)
    assert worker.take_one()["task_id"] == task


async def test_a_manager_that_began_anew_gives_nothing_out_twice() -> None:
    async with running() as world:
        worker = await machine(world, card("GPU-a"), card("GPU-b"))
        await world.submit.submit(resources={"gpus": 1})
        item = worker.take_one()
        await worker.begin(item)
        kept, node = world.store.inner, worker.node
    async with running(inner=kept) as again:
        caller = Caller(again.http, None)
        caller.headers = node.caller.headers
        node.world, node.caller = again, caller
        said = {"cards": {item["task_id"]: ["GPU-a"]}}
        word = worker.word(item, state="busy", facts=said)
        other = await again.submit.submit(resources={"gpus": 1})
        await node.beat(word, gpus=[card("GPU-a"), card("GPU-b")], sample=SAMPLE)
        leases = again.manager.ctx.cluster.scheduler.leases()
        assert leases[item["task_id"]].cards == ("GPU-a",)
        assert leases[other].cards == ("GPU-b",)


async def test_cards_of_an_attempt_that_is_no_longer_ours_are_left_alone(
    world: World,
) -> None:
    worker = await machine(world, card("GPU-a"))
    gone = worker.word(facts={"cards": {"task-of-old": ["GPU-a"]}})
    await worker.node.beat(gone, gpus=[card("GPU-a")], sample=SAMPLE)
    task = await world.submit.submit(resources={"gpus": 1})
    assert (await shown(world, task))["status"] == "queued"
    await worker.node.beat(worker.word(), gpus=[card("GPU-a")], sample=SAMPLE)
    assert worker.take_one()["task_id"] == task


async def test_a_cancelled_task_keeps_its_gpu_until_it_has_stopped(
    world: World,
) -> None:
    worker = await machine(world, card("GPU-a"), slots=2)
    first = await world.submit.submit(resources={"gpus": 1})
    item = worker.take_one()
    await worker.begin(item)
    second = await world.submit.submit(resources={"gpus": 1})
    await world.submit.delete(f"/tasks/{first}")
    await quiet()
    assert worker.take() == [], "it has been told, no more"
    assert "stopping" in (await shown(world, second))["waiting"]["message"]
    await worker.report(outcomes=[outcome(item, kind="cancelled")])
    await quiet()
    assert worker.take_one()["task_id"] == second


async def test_what_a_node_that_left_had_is_forgotten(world: World) -> None:
    worker = await machine(world, card("GPU-a"))
    node, scheduler = worker.node, world.manager.ctx.cluster.scheduler
    assert scheduler.offers(node.id) is not None
    await world.admin.send("DELETE", f"/nodes/{node.id}", params={"force": True})
    world.clock.step(3_600.0)
    await world.manager.nodes.leave.step()
    assert (await world.read.ask(f"/nodes/{node.id}"))["status"] != "online"
    assert scheduler.offers(node.id) is None


@pytest.mark.parametrize(
    ("resources", "field"),
    [
        ({"gpus": 1.5}, "resources.gpus"),
        ({"gpus": -1}, "resources.gpus"),
        ({"gpus": "all"}, "resources.gpus"),
        ({"memory_mb": float("1e300")}, "resources.memory_mb"),
        ({"cpus": True}, "resources.cpus"),
        ({"gpu_kind": "a|b"}, "resources.gpu_kind"),
        ({"gpu_vendor": "acme"}, "resources.gpu_vendor"),
        ({"disk": 1}, "resources.disk"),
    ],
)
async def test_needs_that_mean_nothing_are_refused(
    world: World, resources: Any, field: str
) -> None:
    body = {"task_type": "echo", "resources": resources}
    told = fault(await world.submit.post("/tasks", body), 422, "invalid_field")
    assert told["details"]["field"] == field


async def test_decisions_on_needs_are_made_again_and_simulated(world: World) -> None:
    worker = await machine(world, card("GPU-a"), card("GPU-b"))
    for number in range(12):
        share = 0.5 if number % 3 else 2
        await world.submit.submit(resources={"gpus": share, "gpu_memory_mb": 4000})
        world.clock.step(1.0)
        for item in worker.take():
            await worker.finish(item)
    await quiet()
    for item in worker.take():
        await worker.finish(item)
    answer = await world.admin.get("/cluster/journal")
    journal = read_journal(answer.content.splitlines())
    assert check(journal).difference is None
    work, machines = from_journal(journal)
    assert Simulation(work, machines).run().left == 0


@pytest.mark.spec("C17")
async def test_an_assignment_says_what_was_given_to_whom_and_for_how_long(
    world: World,
) -> None:
    worker = await machine(world, card("GPU-a"))
    await world.submit.submit(model_name="m")
    await worker.finish(worker.take_one())
    task = await world.submit.submit(
        model_name="m", priority=7, resources={"gpus": 1, "gpu_memory_mb": 1000}
    )
    told = await shown(world, task)
    names = ("task_id", "assigned_worker", "model_name", "priority", "resources")
    assert [told[name] for name in names] == [
        task,
        worker.id,
        "m",
        7,
        {"gpus": 1, "gpu_memory_mb": 1000},
    ]
    assert told["estimated_duration"] > 0


# out of memory ---------------------------------------------------------------
async def test_out_of_memory_sends_a_task_to_a_larger_card(world: World) -> None:
    small = await machine(world, card("GPU-small"))
    task = await world.submit.submit(resources={"gpus": 1})
    item = small.take_one()
    large = await machine(world, card("GPU-large", 81920.0))
    error = {"kind": "out_of_memory", "message": "OutOfMemoryError: no more"}
    short = outcome(item, kind="failed", error=error)
    await small.report(outcomes=[short])
    await quiet()
    again = large.take_one()
    assert (again["task_id"], again["attempt"]) == (task, 2)
    told = await shown(world, task)
    assert (told["tries"], told["attempts"][0]["error"]["kind"]) == (0, "out_of_memory")
    await large.report(outcomes=[outcome(again, kind="failed", error=error)])
    await quiet()
    told = await shown(world, task)
    assert (told["status"], told["error"]["kind"]) == ("failed", "out_of_memory")


# gangs -----------------------------------------------------------------------
async def gang(world: World, size: int = 2, **more: Any) -> list[str]:
    return [
        await world.submit.submit(gang="train", gang_rank=n, gang_size=size, **more)
        for n in range(size)
    ]


async def test_a_gang_starts_at_once_and_its_members_find_each_other(
    world: World,
) -> None:
    first = await machine(world, card("GPU-a"))
    members = await gang(world, resources={"gpus": 1})
    waits = (await shown(world, members[0]))["waiting"]
    assert waits["reason"] == "gang_room"
    assert first.take() == []
    second = await machine(world, card("GPU-b"))
    items = [first.take_one(), second.take_one()]
    assert {item["task_id"] for item in items} == set(members)
    told = [item["variables"] for item in items]
    assert {t["CORRAL_RANK"] for t in told} == {"0", "1"}
    assert {t["PET_NNODES"] for t in told} == {"2"}
    assert len({(t["MASTER_ADDR"], t["MASTER_PORT"]) for t in told}) == 1
    shown_ = await shown(world, members[1])
    assert (shown_["gang"], shown_["gang_rank"], shown_["gang_size"]) == ("train", 1, 2)


async def test_when_a_member_fails_the_others_are_stopped(world: World) -> None:
    workers = [await machine(world) for _ in range(2)]
    members = await gang(world)
    items = [worker.take_one() for worker in workers]
    await workers[0].fail(items[0])
    await quiet()
    other = await shown(world, items[1]["task_id"])
    assert (other["status"], other["error"]["kind"]) == ("failed", "gang")
    told = await workers[1].node.beat(workers[1].word(items[1]))
    assert [items[1]["task_id"], 1] in told["drop"]
    assert {items[0]["task_id"], items[1]["task_id"]} == set(members)


async def test_when_a_member_is_lost_all_begin_again_together(world: World) -> None:
    workers = [await machine(world) for _ in range(2)]
    await gang(world)
    items = [worker.take_one() for worker in workers]
    await workers[0].report(outcomes=[outcome(items[0], kind="returned")])
    await quiet()
    again = [worker.take_one() for worker in workers]
    assert {item["attempt"] for item in again} == {2}
    for item in items:
        assert (await shown(world, item["task_id"]))["tries"] == 0


@pytest.mark.parametrize(
    ("told", "field"),
    [
        ({"gang": "g"}, "gang_size"),
        ({"gang": "g", "gang_rank": 2, "gang_size": 2}, "gang_rank"),
        ({"gang_rank": 0, "gang_size": 2}, "gang"),
        (
            {"gang": "g", "gang_rank": 0, "gang_size": 1, "model_name": "m"},
            "model_name",
        ),
    ],
)
async def test_a_gang_that_means_nothing_is_refused(
    world: World, told: Json, field: str
) -> None:
    answer = await world.submit.post("/tasks", {"task_type": "echo", **told})
    assert fault(answer, 422, "invalid_field")["details"]["field"] == field
