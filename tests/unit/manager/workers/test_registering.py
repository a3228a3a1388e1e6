"""Many registrations at once, and the same one twice."""

from __future__ import annotations

import asyncio

from tests.unit.api.world import FakeWorker, World, declared, quiet, said


async def test_a_registration_repeated_while_the_first_is_under_way_changes_nothing(
    world: World,
) -> None:
    node = await world.node()
    reached, go_on = world.store.hold("save_workers")
    first = asyncio.create_task(node.register(declared("one"), declared("two")))
    await reached.wait()
    again = asyncio.create_task(node.register(declared("one"), declared("two")))
    await quiet()
    go_on.set()
    await asyncio.gather(first, again)
    listed = said(await world.read.get("/workers"))
    assert sorted(w["name"] for w in listed["workers"]) == ["one", "two"]


async def test_workers_that_register_together_share_a_commit(world: World) -> None:
    node = await world.node(*(declared(f"w{number}") for number in range(8)))
    one, *others = node.workers.values()
    reached, go_on = world.store.hold("save_workers")
    starting = [asyncio.create_task(one.start())]
    await reached.wait()
    world.store.calls.clear()
    starting += [asyncio.create_task(other.start()) for other in others]
    await quiet()
    go_on.set()
    started: list[FakeWorker] = await asyncio.gather(*starting)
    saves = [count for name, count in world.store.calls if name == "save_workers"]
    assert saves == [len(others)]
    assert len({worker.incarnation for worker in started}) == 8


async def test_a_node_is_asked_for_its_own_workers_alone(world: World) -> None:
    here = await world.node(declared("one"), declared("two"))
    there = await world.node(declared("one"))
    await world.operate.delete(f"/workers/{here.workers['two'].id}")
    cluster = world.manager.ctx.cluster
    assert [w.id for w in cluster.of_node(here.id)] == [here.workers["one"].id]
    assert [w.id for w in cluster.of_node(there.id)] == [there.workers["one"].id]
