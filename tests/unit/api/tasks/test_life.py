"""The whole way of a task over the wire: submit, order, report, result."""

from __future__ import annotations

from tests.unit.api.world import World


async def test_a_task_goes_from_submit_to_result(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit("echo", parameters={"message": "hi"})
    item = worker.take_one()
    assert item["task_id"] == task_id
    await worker.finish(item, {"echoed": "hi"})
    task = await world.read.task(task_id)
    assert task["status"] == "completed"
    assert task["result"] == {"echoed": "hi"}
