"""POST /tasks/cancel and /tasks/requeue: every task that a filter finds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.api.world import World, fault


async def statuses(world: World, ids: list[str]) -> list[str]:
    return [(await world.admin.get(f"/tasks/{i}")).json()["status"] for i in ids]


async def act(world: World, verb: str, **query: Any) -> dict[str, Any]:
    answer = await world.admin.post(f"/tasks/{verb}", params=query)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def test_all_that_match_are_cancelled_and_no_other(world: World) -> None:
    await world.admin.post("/job-types", {"name": "wait"})
    red = [
        await world.admin.submit("wait", labels={"team": "red", "n": str(n)})
        for n in range(5)
    ]
    blue = await world.admin.submit("wait", labels={"team": "blue"})
    told = await act(world, "cancel", task_type="wait", label="team:red")
    assert told == {"done": 5, "refused": 0, "errors": [], "next_cursor": None}
    assert await statuses(world, red) == ["cancelled"] * 5
    assert await statuses(world, [blue]) == ["queued"]
    assert (await act(world, "cancel", label="team:red"))["done"] == 0


async def test_a_page_at_a_time_they_are_run_again(world: World) -> None:
    await world.admin.post("/job-types", {"name": "wait"})
    ids = [await world.admin.submit("wait") for _ in range(5)]
    await act(world, "cancel", task_type="wait")
    done, cursor = 0, None
    for _ in range(3):
        query: dict[str, Any] = {"cursor": cursor} if cursor else {}
        told = await act(
            world, "requeue", task_type="wait", status="cancelled", limit=2, **query
        )
        done, cursor = done + told["done"], told["next_cursor"]
    assert (done, cursor) == (5, None)
    assert await statuses(world, ids) == ["queued"] * 5


async def test_without_a_status_only_failed_ones_run_again(world: World) -> None:
    await world.admin.post("/job-types", {"name": "echo"})
    cancelled = await world.admin.submit("echo")
    await act(world, "cancel", task_type="echo")
    worker = await world.worker("echo")
    bad = await world.admin.submit("echo")
    await worker.fail(worker.take_one())
    assert await statuses(world, [bad]) == ["failed"]
    told = await act(world, "requeue", task_type="echo")
    assert told["done"] == 1
    assert (await world.admin.get(f"/tasks/{bad}")).json()["run"] == 2
    assert await statuses(world, [cancelled]) == ["cancelled"]


async def test_what_is_refused_is_told_and_the_others_go_on(world: World) -> None:
    await world.admin.post("/job-types", {"name": "wait"})
    first = await world.admin.submit("wait")
    second = await world.admin.submit("wait", depends_on=[first])
    other = await world.admin.submit("wait")
    await act(world, "cancel", task_type="wait")
    await world.admin.post(f"/tasks/{other}/requeue")
    label = {"status": "failed,error,cancelled", "search": second}
    told = await act(world, "requeue", **label)
    assert (told["done"], told["refused"]) == (0, 1)
    assert told["errors"][0]["task_id"] == second
    assert first in told["errors"][0]["message"]


@pytest.mark.parametrize("verb", ["cancel", "requeue"])
async def test_who_names_no_filter_is_refused(world: World, verb: str) -> None:
    for query in ({}, {"search": ""}, {"limit": 5}):
        answer = await world.admin.post(f"/tasks/{verb}", params=query)
        error = fault(answer, 422, "invalid_field")
        assert "name which tasks" in error["message"], query
    wrong = await world.admin.post(f"/tasks/{verb}", params={"status": "gone"})
    fault(wrong, 422, "invalid_field")


async def test_a_state_that_cannot_be_acted_on_is_left_alone(world: World) -> None:
    await world.admin.post("/job-types", {"name": "wait"})
    task = await world.admin.submit("wait")
    assert (await act(world, "requeue", status="queued"))["done"] == 0
    assert (await act(world, "cancel", status="completed"))["done"] == 0
    assert await statuses(world, [task]) == ["queued"]
