"""Labels and taints of nodes, what tasks ask of them, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.api.world import FakeNode, World, declared, fault, quiet, said

Json = dict[str, Any]


async def change(world: World, node: FakeNode, **body: Any) -> Json:
    shown = said(await world.operate.send("PATCH", f"/nodes/{node.id}", json=body))
    await quiet()
    return shown


async def test_labels_and_taints_are_the_agents_and_the_operators(
    world: World,
) -> None:
    node = await world.node()
    told = {
        "hostname": "h",
        "labels": {"rack": "a", "old": "1"},
        "taints": ["spot", "tier=a"],
    }
    await node.caller.tell(f"/nodes/{node.id}/register", told)
    shown = await change(
        world,
        node,
        labels={"rack": "b", "old": None, "new": "x"},
        taints={"spot": None, "tier": "b", "more": ""},
    )
    assert shown["labels"] == {"rack": "b", "new": "x"}
    assert shown["taints"] == ["more", "tier=b"]
    await node.caller.tell(f"/nodes/{node.id}/register", told)
    shown = await change(world, node, labels={"new": ""}, taints={"more": None})
    assert shown["labels"] == {"rack": "b"}
    assert shown["taints"] == ["tier=b"]


async def test_a_task_goes_where_its_labels_say_and_shows_them(world: World) -> None:
    one, two = await world.worker("echo"), await world.worker("echo")
    await change(world, two.node, labels={"rack": "b"})
    ids = [
        await world.submit.submit(node_labels={"rack": "b"}, labels={"mine": "x"})
        for _ in range(2)
    ]
    assert one.take() == []
    item = two.take_one()
    assert item["task_id"] == ids[0]
    assert item["labels"] == {"mine": "x"}
    task = await world.read.task(ids[1])
    assert (task["labels"], task["node_labels"]) == ({"mine": "x"}, {"rack": "b"})
    assert task["waiting"]["reason"] == "workers_busy"
    lost = await world.submit.submit(node_labels={"rack": "c"})
    waiting = (await world.read.task(lost))["waiting"]
    assert waiting["reason"] == "node_labels"
    await change(world, one.node, labels={"rack": "c"})
    assert one.take_one()["task_id"] == lost


async def test_a_tainted_node_waits_for_tasks_that_tolerate_it(world: World) -> None:
    worker = await world.worker("echo")
    await change(world, worker.node, taints={"spot": "often"})
    plain = await world.submit.submit()
    assert (await world.read.task(plain))["waiting"]["reason"] == "taints"
    brave = await world.submit.submit(tolerates=["spot"])
    assert worker.take_one()["task_id"] == brave
    assert (await world.read.task(brave))["tolerates"] == ["spot"]


async def test_a_retry_and_a_batch_keep_what_was_asked(world: World) -> None:
    one, two = await world.worker("echo"), await world.worker("echo")
    await change(world, two.node, labels={"rack": "b"})
    row = {"task_type": "echo", "node_labels": {"rack": "b"}, "retries": 1}
    told = await world.submit.tell("/tasks/batch", {"tasks": [row]})
    await two.fail(two.take_one())
    await world.step(120, one.node, two.node)
    assert one.take() == []
    assert two.take_one()["task_id"] == told["task_ids"][0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"node_labels": {"a": "b c"}},
        {"node_labels": {"a": ""}},
        {"tolerates": ["a b"]},
        {"labels": {"corral.node_labels": "a=b"}},
        {"labels": {"corral.tolerates": "a"}},
    ],
)
async def test_what_no_node_could_have_is_refused(world: World, wrong: Json) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    answer = await world.submit.post("/tasks", {"task_type": "echo", **wrong})
    fault(answer, 422, "invalid_field")


@pytest.mark.parametrize(
    "wrong",
    [
        {"labels": {"a b": "c"}},
        {"labels": {"a": "b c"}},
        {"taints": {"-a": ""}},
        {"taints": ["spot"]},
        {"colour": "red"},
    ],
)
async def test_a_change_of_a_wrong_shape_is_refused(world: World, wrong: Json) -> None:
    node = await world.node()
    answer = await world.operate.send("PATCH", f"/nodes/{node.id}", json=wrong)
    fault(answer, 422, "invalid_field")


async def test_an_agents_taint_of_a_wrong_shape_is_refused(world: World) -> None:
    node = await world.node(declared("one"))
    body = {"hostname": "h", "taints": ["a b"]}
    answer = await node.caller.post(f"/nodes/{node.id}/register", body)
    fault(answer, 422, "invalid_field")


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "w", "duration": 60},
        {"name": "w", "duration": 60, "cron": "x"},
        {"name": "w", "duration": 0, "cron": "@daily"},
        {"name": "w", "duration": 60, "starts_at": "2025-01-01"},
        {"name": "w", "duration": 60, "cron": "@daily", "timezone": "Nowhere"},
        {"name": "a b", "duration": 60, "cron": "@daily"},
        {"name": "w", "duration": 60, "cron": "@daily", "reason": "a\nb"},
    ],
)
async def test_a_window_that_cannot_be_is_refused(world: World, wrong: Json) -> None:
    node = await world.node()
    answer = await world.operate.post(f"/nodes/{node.id}/windows", wrong)
    fault(answer, 422, "invalid_field")


async def test_a_window_without_a_zone_is_read_in_the_windows_own(
    world: World,
) -> None:
    node = await world.node()
    body = {
        "name": "w",
        "duration": 60,
        "starts_at": "2026-07-01T03:00",
        "timezone": "Europe/Berlin",
    }
    told = await world.operate.tell(f"/nodes/{node.id}/windows", body)
    assert told["windows"][0]["starts_at"] == "2026-07-01T01:00:00Z"


async def test_a_schedules_task_may_ask_for_a_node(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    task = {"task_type": "echo", "node_labels": {"rack": "a"}, "tolerates": ["spot"]}
    body = {"cron": "@daily", "task": task, "name": "nightly"}
    told = await world.operate.tell("/schedules", body)
    assert told["task"]["node_labels"] == {"rack": "a"}
    assert told["task"]["tolerates"] == ["spot"]
    assert told["task"]["labels"] == {}
