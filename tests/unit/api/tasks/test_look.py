"""Looking: one task, waiting for it, many at once, lists, logs, events."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.api.world import World, fault, outcome, quiet


async def ids(world: World, **query: Any) -> list[str]:
    told = await world.read.ask("/tasks", **query)
    return [task["task_id"] for task in told["tasks"]]


# waiting ---------------------------------------------------------------------


async def test_a_long_poll_answers_the_moment_the_task_ends(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    poll = asyncio.create_task(world.read.ask(f"/tasks/{task_id}", wait=60))
    await quiet()
    assert not poll.done()
    await worker.finish(worker.take_one(), "done")
    assert (await poll)["result"] == "done"


@pytest.mark.spec("B26")
async def test_a_submit_that_waits_is_answered_with_the_result(world: World) -> None:
    worker = await world.worker("echo")
    body = {"task_type": "echo", "task_id": "mine"}
    poll = asyncio.create_task(world.submit.post("/tasks?wait=60", body))
    await quiet()
    assert not poll.done()
    await worker.finish(worker.take_one(), "done")
    answer = await poll
    assert answer.status_code == 201
    assert (answer.json()["status"], answer.json()["result"]) == ("completed", "done")
    again = await world.submit.post("/tasks?wait=60", body)
    assert (again.status_code, again.json()["result"]) == (200, "done")


async def test_a_long_poll_that_runs_out_tells_how_it_is_then(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    task_id = await world.submit.submit()
    told = await world.read.ask(f"/tasks/{task_id}", wait=0.01)
    assert told["status"] == "queued"


async def test_a_long_poll_for_an_ended_or_unknown_task_does_not_wait(
    world: World,
) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    await worker.finish(worker.take_one())
    async with asyncio.timeout(60):
        await world.read.ask(f"/tasks/{task_id}", wait=60)
        fault(await world.read.get("/tasks/nope", wait=60), 404, "task_not_found")


async def test_collect_answers_when_all_have_ended(world: World) -> None:
    worker = await world.worker("echo", concurrency=3)
    tasks = [await world.submit.submit() for _ in range(3)]
    body = {"task_ids": [*tasks, "nope"], "wait": 60}
    poll = asyncio.create_task(world.read.tell("/tasks/collect", body))
    for item in worker.take():
        await quiet()
        assert not poll.done()
        await worker.finish(item, {"of": item["task_id"]})
    told = await poll
    assert [t["task_id"] for t in told["tasks"]] == tasks
    assert [t["result"] for t in told["tasks"]] == [{"of": t} for t in tasks]
    assert (told["pending"], told["unknown"]) == ([], ["nope"])


async def test_collect_tells_what_is_still_pending(world: World) -> None:
    worker = await world.worker("echo")
    one, two = await world.submit.submit(), await world.submit.submit()
    await worker.finish(worker.take_one(), 1)
    told = await world.read.tell("/tasks/collect", {"task_ids": [one, two]})
    assert [t["task_id"] for t in told["tasks"]] == [one]
    assert told["pending"] == [two]


# lists -----------------------------------------------------------------------


@pytest.mark.spec("C5", "E4")
async def test_a_list_is_newest_first_and_can_be_searched(world: World) -> None:
    worker = await world.worker("echo")
    await world.operate.tell("/job-types", {"name": "other"})
    done = await world.submit.submit(labels={"team": "red"})
    failed = await world.submit.submit(labels={"team": "red", "x": "1"})
    waits = await world.submit.submit("other", labels={"team": "blue"})
    await worker.finish(worker.take_one())
    await worker.fail(worker.take_one())
    assert await ids(world) == [waits, failed, done]
    assert await ids(world, status="completed") == [done]
    assert await ids(world, status="completed,failed") == [failed, done]
    assert await ids(world, status="queued") == [waits]
    assert await ids(world, task_type="other") == [waits]
    assert await ids(world, worker_id=worker.id) == [failed, done]
    assert await ids(world, label="team:red") == [failed, done]
    assert await ids(world, label=["team:red", "x:1"]) == [failed]
    assert await ids(world, label="team:green") == []
    assert await ids(world, dead=True) == [failed]
    assert await ids(world, dead=False) == [waits, done]


async def test_an_assigned_task_is_listed_as_queued(world: World) -> None:
    await world.worker("echo")
    task_id = await world.submit.submit()
    assert await ids(world, status="queued") == [task_id]
    assert await ids(world, status="assigned") == [task_id]
    assert await ids(world, status="running") == []


async def test_a_list_is_paged_by_cursor_without_gaps_while_new_tasks_come(
    world: World,
) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    made = [await world.submit.submit() for _ in range(7)]
    seen: list[str] = []
    cursor = None
    while True:
        query: dict[str, Any] = {"cursor": cursor} if cursor else {}
        page = await world.read.ask("/tasks", limit=3, **query)
        seen += [task["task_id"] for task in page["tasks"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        await world.submit.submit()
    assert seen == made[::-1]


async def test_a_list_is_paged_by_offset_with_a_total(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    made = [await world.submit.submit() for _ in range(5)]
    page = await world.read.ask("/tasks", limit=2, offset=2)
    assert [t["task_id"] for t in page["tasks"]] == [made[2], made[1]]
    assert (page["total"], page["limit"], page["offset"]) == (5, 2, 2)


# logs and events -------------------------------------------------------------


async def test_logs_are_read_on_from_a_cursor_until_the_task_is_done(
    world: World,
) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    item = worker.take_one()
    chunk = {
        "task_id": task_id,
        "attempt": 1,
        "seq": 1,
        "lines": [[1.5, "stdout", "a"]],
    }
    await worker.report(logs=[chunk])
    told = await world.read.ask(f"/tasks/{task_id}/logs")
    assert told["lines"] == [{"attempt": 1, "at": 1.5, "stream": "stdout", "text": "a"}]
    assert not told["done"]
    more = {**chunk, "seq": 3, "lines": [[2.5, "stderr", "b"], [2.6, "stdout", "ä"]]}
    said_again = {**chunk, "lines": [[9, "stdout", "changed"]]}
    await worker.report(logs=[more, said_again], outcomes=[outcome(item)])
    told = await world.read.ask(f"/tasks/{task_id}/logs", after=told["cursor"])
    assert [line["text"] for line in told["lines"]] == ["b", "ä"]
    told = await world.read.ask(f"/tasks/{task_id}/logs", after=told["cursor"])
    assert (told["lines"], told["done"]) == ([], True)


async def test_logs_can_be_waited_for(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    poll = asyncio.create_task(world.read.ask(f"/tasks/{task_id}/logs", wait=30))
    await quiet()
    chunk = {"task_id": task_id, "attempt": 1, "seq": 1, "lines": [[1, "stdout", "x"]]}
    item = worker.take_one()
    await worker.report(logs=[chunk], outcomes=[outcome(item)])
    assert [line["text"] for line in (await poll)["lines"]] == ["x"]


async def test_events_tell_what_happened_and_to_which_task(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    await worker.finish(worker.take_one())
    told = await world.read.ask("/events")
    kinds = [event["event_type"] for event in told["events"]]
    assert kinds[:2] == ["node_joined", "node_registered"]
    of_task = await world.read.ask("/events", task_id=task_id)
    assert [e["event_type"] for e in of_task["events"]] == [
        "tasks_submitted",
        "tasks_settled",
    ]
    first = told["events"][0]["seq"]
    later = await world.read.ask("/events", after=first, limit=1)
    assert [e["seq"] for e in later["events"]] == [first + 1]
    assert later["next"] == first + 1
