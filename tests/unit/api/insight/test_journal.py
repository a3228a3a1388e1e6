"""GET /cluster/journal: lines for an admin, to be replayed."""

from __future__ import annotations

import json

from corral.sim.history import from_journal
from corral.sim.journal import check, read_journal
from tests.unit.api.world import World, fault, quiet


async def test_what_the_manager_decided_is_decided_again(world: World) -> None:
    worker, orders = await world.worker("echo"), 0
    for number in range(20):
        await world.admin.submit("echo", priority=number % 3)
        world.clock.step(1.0)
        for order in worker.orders():
            orders += 1
            for item in order["items"]:
                await worker.finish(item)
    await quiet()
    orders += len(worker.orders())
    answer = await world.admin.get("/cluster/journal")
    assert answer.headers["content-type"] == "application/x-ndjson"
    journal = read_journal(answer.content.splitlines())
    found = check(journal)
    assert found.difference is None
    assert found.orders == orders > 10
    work, machines = from_journal(journal)
    assert len(work.arrivals) == 20
    assert [machine.name for machine in machines] == [worker.id]


async def test_nothing_of_inputs_is_in_the_journal(world: World) -> None:
    await world.worker("echo")
    await world.admin.submit("echo", parameters={"secret": "very private"})
    answer = await world.admin.get("/cluster/journal", since_s=60)
    assert "very private" not in answer.text
    assert json.loads(answer.text.splitlines()[0])["journal"] == 2


async def test_a_time_that_is_none_is_refused(world: World) -> None:
    fault(await world.admin.get("/cluster/journal", since_s=-1), 422, "invalid_field")
