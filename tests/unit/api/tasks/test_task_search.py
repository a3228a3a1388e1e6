"""GET /tasks: found by model or by any text, with or without results."""

from __future__ import annotations

from tests.unit.api.world import World


async def test_a_model_or_a_text_chooses_tasks(world: World) -> None:
    await world.worker("echo")
    first = await world.admin.submit("echo", model_name="tiny")
    await world.admin.submit("echo")
    listed = world.admin.get
    for asked in ({"model_name": "tiny"}, {"search": "TINY"}, {"search": first[-12:]}):
        tasks = (await listed("/tasks", **asked)).json()["tasks"]
        assert [task["task_id"] for task in tasks] == [first], asked
        assert tasks[0]["model_name"] == "tiny"
    assert (await listed("/tasks", search="100%")).json()["total"] == 0


async def test_results_are_left_out_where_nobody_wants_them(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.admin.submit("echo")
    for order in worker.orders():
        for item in order["items"]:
            await worker.finish(item, {"big": 1})
    (await world.admin.get(f"/tasks/{task_id}", wait=10)).raise_for_status()
    full = (await world.admin.get("/tasks")).json()["tasks"][0]
    short = (await world.admin.get("/tasks", results="false")).json()["tasks"][0]
    assert full["status"] == "completed"
    assert full["result"] is not None
    assert short == {**full, "result": None}
    told = (await world.admin.get(f"/tasks/{task_id}")).json()
    assert told["created_at"] <= told["assigned_at"] <= told["completed_at"]
