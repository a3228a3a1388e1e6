"""Autoscaling in the manager: workers come with demand, finish what they have, and go.

The workers speak the wire; time passes when told.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from corral.manager.config import ManagerConfig
from corral.manager.nodes.liveness import Liveness
from corral.manager.workers.scaling import ScalingConfig
from corral.scheduler.scaling.values import ScalingPolicy
from tests.unit.api.world import (
    SECRET,
    FakeNode,
    FakeWorker,
    World,
    declared,
    fault,
    quiet,
    running,
)

Json = dict[str, Any]
POLICY = ScalingPolicy(wait_s=10, idle_s=60, cooldown_s=5, most=10)
# Steps of the clock are no silence of nodes.
PATIENT = Liveness(suspect_s=1e6, lost_s=1e6, register_s=1e6)
SCALING = ScalingConfig(True, POLICY, node_workers=5)
CONFIG = ManagerConfig(SECRET, liveness=PATIENT, scaling=SCALING)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running(CONFIG) as made:
        yield made


async def kind(world: World, name: str = "mine", **more: Any) -> None:
    said = {"worker_name": name, "worker_class": "pkg:Class", "job_type": "echo"}
    answer = await world.operate.post("/register_worker_type", {**said, **more})
    assert answer.is_success, answer.text


async def step(world: World, seconds: float = 0.0) -> None:
    world.clock.step(seconds)
    await world.manager.workers.scaling.step()
    await quiet()


async def wanted(node: FakeNode) -> list[str]:
    told = await node.caller.ask(f"/nodes/{node.id}/desired")
    return [row["worker_id"] for row in told["workers"]]


async def up(node: FakeNode, number: int = 0) -> FakeWorker:
    """The agent starts what it was told to."""
    worker = FakeWorker(node, (await wanted(node))[number])
    worker.pid += number
    return await worker.start()


async def scaling(world: World, name: str = "mine") -> Json:
    told = await world.read.ask("/cluster/scaling")
    assert told["enabled"] is True
    (found,) = [t for t in told["types"] if t["worker_type"] == name]
    return dict(found)


async def events(world: World, event_type: str) -> list[Json]:
    told = await world.read.ask("/events", limit=1000)
    return [e for e in told["events"] if e["event_type"] == event_type]


async def test_a_type_without_workers_gets_one_with_the_first_task_and_back(
    world: World,
) -> None:
    node = await world.node()
    await kind(world, min_workers=0, max_workers=4)
    await step(world)
    assert await wanted(node) == []
    task_id = await world.submit.submit()
    waits = (await world.read.task(task_id))["waiting"]
    assert waits["reason"] == "worker_starting"
    await step(world)
    (worker_id,) = await wanted(node)
    now = await scaling(world)
    assert (now["workers"], now["starting"], now["waiting"]) == (1, 1, 1)
    assert now["last"]["event"] == "cluster_scaled_up"
    assert now["last"]["worker_id"] == worker_id
    told = await world.read.ask(f"/tasks/{task_id}/explain")
    assert told["reason"]["reason"] == "worker_starting"
    assert told["changes"][0]["change"] == "wait"
    await step(world, 1)
    assert await wanted(node) == [worker_id]
    worker = await up(node)
    await worker.finish(worker.take_one())
    await step(world, 1)
    await step(world, 59)
    assert await wanted(node) == [worker_id]
    await step(world, 2)
    assert await wanted(node) == []
    assert await world.read.status(task_id) == "completed"
    (event,) = await events(world, "cluster_scaled_down")
    assert event["title"].endswith("for 60 s at most 0 of 1 worker(s) were needed")
    assert event["data"]["worker_type"] == "mine"
    assert len(await events(world, "cluster_scaled_up")) == 1


async def test_under_load_there_are_more_up_to_the_most(world: World) -> None:
    node = await world.node()
    await kind(world, max_workers=3)
    for _ in range(9):
        await world.submit.submit()
    await step(world)
    worker = await up(node)
    item = worker.take_one()
    assert len(await wanted(node)) == 1
    # Nobody knows how long such a task takes: the oldest has waited over 10 s.
    await step(world, 11)
    assert len(await wanted(node)) == 2
    now = await scaling(world)
    assert "the oldest for 11.0 s" in now["last"]["reason"]
    ended = {"task_id": item["task_id"], "attempt": item["attempt"], "result": None}
    ended |= {"kind": "completed", "started_at": 0.0, "duration_s": 12.0}
    await worker.report(outcomes=[ended])
    await step(world, 6)
    assert len(await wanted(node)) == 3
    await step(world, 6)
    assert len(await wanted(node)) == 3
    now = await scaling(world)
    assert now["blocked"] == "it has its maximum of 3 worker(s)"
    assert now["predicted_wait_s"] > 10


async def test_a_busy_worker_finishes_before_it_goes(world: World) -> None:
    node = await world.node()
    await kind(world, min_workers=2, max_workers=2)
    await step(world)
    one, two = await up(node, 0), await up(node, 1)
    first, second = await world.submit.submit(), await world.submit.submit()
    items = {one.id: one.take_one(), two.id: two.take_one()}
    for worker in (one, two):
        await worker.begin(items[worker.id])
    await world.operate.send(
        "PUT", "/worker-types/mine/scaling", json={"max_workers": 1}
    )
    await step(world)
    assert len(await wanted(node)) == 2
    assert (await scaling(world))["leaving"] == 1
    leaving = next(iter(world.manager.workers.scaling._leaving))
    goes, stays = (one, two) if one.id == leaving else (two, one)
    third = await world.submit.submit()
    await goes.finish(items[goes.id], wants_order=True)
    assert goes.take() == []
    await step(world)
    assert await wanted(node) == [stays.id]
    await stays.finish(items[stays.id])
    assert stays.take_one()["task_id"] == third
    for task_id in (first, second):
        task = await world.read.task(task_id)
        assert (task["status"], task["attempt"]) == ("completed", 1)


async def test_an_order_on_its_way_is_waited_for(world: World) -> None:
    node = await world.node()
    await kind(world, min_workers=1, max_workers=1)
    await step(world)
    worker = await up(node)
    task_id = await world.submit.submit(run_after=1.0)
    reached, gate = world.store.hold("place_tasks")
    world.clock.step(2)
    world.manager.tasks.dispatch.kick()
    await reached.wait()
    await world.operate.send(
        "PUT", "/worker-types/mine/scaling", json={"max_workers": 0}
    )
    await step(world)
    assert await wanted(node) == [worker.id]
    gate.set()
    await quiet()
    await step(world)
    assert await wanted(node) == [worker.id]
    await worker.finish(worker.take_one())
    await step(world)
    assert await wanted(node) == []
    assert (await world.read.task(task_id))["attempt"] == 1


async def test_a_worker_that_tasks_wait_for_by_name_stays(world: World) -> None:
    node = await world.node()
    await kind(world, min_workers=0, max_workers=1)
    await world.submit.submit()
    await step(world)
    worker = await up(node)
    await worker.finish(worker.take_one())
    own = await world.submit.submit(only_on=worker.id, run_after=500.0)
    await step(world, 1)
    await step(world, 100)
    assert await wanted(node) == [worker.id]
    world.clock.step(400)
    world.manager.tasks.dispatch.kick()
    await quiet()
    await worker.finish(worker.take_one())
    assert await world.read.status(own) == "completed"
    await step(world, 1)
    await step(world, 61)
    assert await wanted(node) == []


async def test_only_workers_of_types_with_limits_are_its_business(
    world: World,
) -> None:
    node = await world.node(declared("own", "echo"))
    await kind(world)
    body = {"worker_class": "corral.worker.builtin:EchoWorker", "node_id": node.id}
    plain = (await world.operate.tell("/workers", body))["workers"][0]["worker_id"]
    launch = {"node_url": node.id, "worker_type": "mine"}
    typed = (await world.operate.tell("/launch_worker", launch))["launch_id"]
    everyone = [node.workers["own"].id, plain, typed]
    for worker_id in everyone:
        await FakeWorker(node, worker_id).start()
    await step(world)
    await step(world, 1000)
    assert sorted(await wanted(node)) == sorted(everyone)
    await world.operate.send(
        "PUT", "/worker-types/mine/scaling", json={"max_workers": 3}
    )
    await step(world)
    await step(world, 61)
    assert sorted(await wanted(node)) == sorted(everyone[:2])


async def test_a_launch_that_fails_backs_off_and_says_why(world: World) -> None:
    node = await world.node()
    await kind(world, max_workers=4)
    task_id = await world.submit.submit()
    await step(world)
    (first,) = await wanted(node)
    word: Json = {"worker_id": first, "incarnation": None, "pid": None, "held": []}
    await node.beat({**word, "state": "error", "error": "no module named pkg"})
    waits = (await world.read.task(task_id))["waiting"]
    assert waits["reason"] == "worker_error"
    await step(world, 1)
    await step(world, 4)
    assert await wanted(node) == [first]
    now = await scaling(world)
    assert "no module named pkg" in now["blocked"]
    assert now["predicted_wait_s"] is None
    await step(world, 2)
    assert len(await wanted(node)) == 2


async def test_held_nodes_get_none_and_the_task_says_so(world: World) -> None:
    node = await world.node()
    await kind(world, max_workers=4)
    await world.operate.tell(f"/nodes/{node.id}/cordon", {"reason": "cables"})
    task_id = await world.submit.submit()
    await step(world)
    assert await wanted(node) == []
    waits = (await world.read.task(task_id))["waiting"]
    assert waits["reason"] == "no_worker"
    assert "none can be started: no open node has room" in waits["message"]
    await world.operate.tell(f"/nodes/{node.id}/uncordon")
    await step(world)
    assert len(await wanted(node)) == 1


async def test_cards_decide_where_workers_with_cards_start(world: World) -> None:
    bare, full = await world.node(), await world.node()
    card = {"vendor": "nvidia", "name": "H200", "is_offered": True}
    cards = [{**card, "id": f"GPU-{n}", "index": n} for n in range(2)]
    await bare.beat(gpus=[])
    await full.beat(gpus=cards)
    await kind(world, min_workers=1, max_workers=4, gpus=2)
    await step(world)
    assert await wanted(bare) == []
    told = await full.caller.ask(f"/nodes/{full.id}/desired")
    assert [row["gpus"] for row in told["workers"]] == ["2"]
    await world.operate.send(
        "PUT",
        "/worker-types/mine/scaling",
        json={"min_workers": 2, "max_workers": 4},
    )
    await step(world, 10)
    assert (await scaling(world))["blocked"] == "no open node has 2 free GPU(s)"


async def test_the_whole_cluster_has_a_most(world: World) -> None:
    await world.node(*(declared(f"own-{n}", "echo") for n in range(4)))
    nodes = [await world.node() for _ in range(3)]
    await kind(world, min_workers=8, max_workers=8)
    await step(world)
    assert sum([len(await wanted(node)) for node in nodes]) == 6
    now = await scaling(world)
    assert now["blocked"] == "the cluster has its maximum of 10 worker(s)"
    assert (await world.read.ask("/cluster/scaling"))["total_workers"] == 10


async def test_a_restarted_manager_takes_up_what_is_there(world: World) -> None:
    node = await world.node()
    await kind(world, max_workers=4)
    await world.submit.submit()
    await step(world)
    worker = await up(node)
    item = worker.take_one()
    await world.submit.submit()
    async with running(CONFIG, world.store.inner, world.clock) as other:
        # Nobody has beaten yet; what was there is on its way.
        await step(other)
        await step(other, 2)
        assert len(other.manager.ctx.cluster.workers) == 1
        assert (await scaling(other))["workers"] == 1
    assert item["attempt"] == 1


async def test_bad_limits_are_refused_and_name_the_fix(world: World) -> None:
    await kind(world)

    async def refused(field: str, **limits: Any) -> str:
        path = "/worker-types/mine/scaling"
        answer = await world.operate.send("PUT", path, json=limits)
        error = fault(answer, 422, "invalid_field")
        assert error["details"]["field"] == field
        return str(error["message"])

    assert "needs max_workers" in await refused("max_workers", min_workers=1)
    assert "0 to 10000" in await refused("max_workers", max_workers=-1)
    assert "0 to max_workers (2)" in await refused(
        "min_workers", min_workers=3, max_workers=2
    )
    await kind(world, job_type=None)
    assert "serves no job type" in await refused("job_type", max_workers=2)
    await kind(world, gpus="gpu:0")
    assert "as a number" in await refused("gpus", max_workers=2)
    answer = await world.operate.send("PUT", "/worker-types/no/scaling", json={})
    fault(answer, 404, "not_found")


async def test_limits_stay_when_the_type_is_registered_again(world: World) -> None:
    await kind(world, min_workers=1, max_workers=2, gpus=1)
    await kind(world, worker_params={"a": 1})
    (row,) = (await world.read.ask("/worker-types"))["worker_types"]
    assert (row["min_workers"], row["max_workers"], row["gpus"]) == (1, 2, "1")
    await kind(world, min_workers=0, max_workers=None, gpus=0)
    (row,) = (await world.read.ask("/worker-types"))["worker_types"]
    assert (row["min_workers"], row["max_workers"], row["gpus"]) == (0, None, "")


async def test_while_it_is_off_nothing_is_started() -> None:
    async with running() as world:
        node = await world.node()
        await kind(world, min_workers=2, max_workers=4)
        task_id = await world.submit.submit()
        await step(world, 100)
        assert await wanted(node) == []
        told = await world.read.ask("/cluster/scaling")
        assert told["enabled"] is False
        assert told["types"][0]["waiting"] == 1
        waits = (await world.read.task(task_id))["waiting"]
        assert waits["reason"] == "no_worker"
