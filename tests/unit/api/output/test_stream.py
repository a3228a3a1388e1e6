"""What tasks emit: as events and in pages, through attempts, ends and hang-ups."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.unit.api.hanging import Listener
from tests.unit.api.world import FakeWorker, World, fault, outcome, quiet

Json = dict[str, Any]


def part(item: Json, first: int, *values: Any) -> Json:
    who = {"task_id": item["task_id"], "attempt": item["attempt"]}
    return {**who, "first": first, "values": list(values)}


async def started(world: World, **more: Any) -> tuple[FakeWorker, str, Json]:
    worker = await world.worker("echo")
    task_id = await world.submit.submit(**more)
    return worker, task_id, worker.take_one()


async def lose(world: World, worker: FakeWorker, item: Json) -> Json:
    """Its runner dies; the next attempt."""
    error = {"kind": "worker_died", "message": "killed"}
    await worker.report(outcomes=[outcome(item, kind="lost", error=error)])
    await world.step(2, worker.node)
    return worker.take_one()


def events(body: bytes) -> list[Json]:
    rows = [event.split("\n") for event in body.decode().strip().split("\n\n")]
    told = [[r for r in row if not r.startswith(":")] for row in rows]
    return [dict(row.split(": ", 1) for row in event) for event in told if event]


async def test_events_come_as_they_are_emitted_and_end_with_the_outcome(
    world: World,
) -> None:
    worker, task_id, item = await started(world)
    listener = Listener(world.app, f"/tasks/{task_id}/stream", world.read)
    await quiet()
    await worker.report(output=[part(item, 1, "a", {"text": "b"})])
    assert events(listener.body) == [
        {"id": "1:1", "data": '"a"'},
        {"id": "1:2", "data": '{"text":"b"}'},
    ]
    await worker.report(
        output=[part(item, 3, None)], outcomes=[outcome(item, {"x": 1})]
    )
    await listener.ended()
    assert listener.headers["content-type"].startswith("text/event-stream")
    last, end = events(listener.body)[2:]
    assert last == {"id": "1:3", "data": "null"}
    assert end["event"] == "end"
    told = json.loads(end["data"])
    assert (told["status"], told["result"]) == ("completed", {"x": 1})


async def test_a_follower_goes_on_where_it_was(world: World) -> None:
    worker, task_id, item = await started(world)
    await worker.report(output=[part(item, 1, "a", "b", "c")], outcomes=[outcome(item)])
    path = f"/tasks/{task_id}/stream"
    by_header = await world.read.send("GET", path, headers={"Last-Event-ID": "1:2"})
    by_query = await world.read.get(path, after="1:2")
    for answer in (by_header, by_query):
        assert [e.get("id") for e in events(answer.content)] == ["1:3", None]


async def test_pages_are_waited_for(world: World) -> None:
    worker, task_id, item = await started(world)
    path = f"/tasks/{task_id}/output"
    told = await world.read.ask(path)
    assert (told["pieces"], told["done"]) == ([], False)
    poll = asyncio.create_task(world.read.ask(path, wait=60))
    await quiet()
    assert not poll.done()
    await worker.report(output=[part(item, 1, "a", "b")])
    told = await asyncio.wait_for(poll, 60)
    assert told["pieces"] == [
        {"attempt": 1, "number": 1, "value": "a"},
        {"attempt": 1, "number": 2, "value": "b"},
    ]
    poll = asyncio.create_task(world.read.ask(path, wait=60, after=told["cursor"]))
    await quiet()
    await worker.finish(item, "ab")
    told = await asyncio.wait_for(poll, 60)
    assert (told["pieces"], told["done"]) == ([], True)
    assert told["task"]["result"] == "ab"


async def test_the_next_attempt_is_given_what_was_emitted_and_goes_on(
    world: World,
) -> None:
    worker, task_id, item = await started(world)
    listener = Listener(world.app, f"/tasks/{task_id}/stream", world.read)
    await worker.report(output=[part(item, 1, "a", {"text": "b"})])
    item = await lose(world, worker, item)
    assert (item["attempt"], item["emitted"]) == (2, ["a", {"text": "b"}])
    await worker.report(output=[part(item, 3, "c")], outcomes=[outcome(item)])
    await listener.ended()
    told = events(listener.body)
    assert [e.get("id") for e in told] == ["1:1", "1:2", None, "2:3", None]
    assert told[2] == {"event": "attempt", "data": '{"attempt":2,"after":2}'}


async def test_an_attempt_that_begins_again_says_what_is_void(world: World) -> None:
    worker, task_id, item = await started(world)
    await worker.report(output=[part(item, 1, "a", "b")])
    path = f"/tasks/{task_id}/output"
    told = await world.read.ask(path)
    old = item
    item = await lose(world, worker, item)
    await worker.report(output=[part(old, 3, "late words"), part(item, 1, "x")])
    told = await world.read.ask(path, after=told["cursor"])
    assert told["restarted"] == {"attempt": 2, "after": 0}
    assert told["pieces"] == [{"attempt": 2, "number": 1, "value": "x"}]


async def test_a_worker_cannot_speak_for_a_task_that_is_not_its_own(
    world: World,
) -> None:
    _, task_id, item = await started(world)
    other = await world.worker("sleep")
    await other.report(output=[part(item, 1, "not mine")])
    assert (await world.read.ask(f"/tasks/{task_id}/output"))["pieces"] == []


async def test_what_is_emitted_cannot_forge_an_event(world: World) -> None:
    worker, task_id, item = await started(world)
    body = json.dumps(
        {
            "incarnation": worker.incarnation,
            "report_id": "forged",
            "output": [part(item, 1, "@")],
        }
    ).replace('"@"', '{"a":\n\n1}')
    path = f"/workers/{worker.id}/reports"
    await worker.node.caller.post(path, body.encode())
    await worker.finish(item)
    answer = await world.read.get(f"/tasks/{task_id}/stream")
    assert events(answer.content)[0] == {"id": "1:1", "data": '{"a":1}'}


async def test_after_the_end_and_a_while_only_the_outcome_is_left(world: World) -> None:
    worker, task_id, item = await started(world)
    await worker.report(output=[part(item, 1, "a")], outcomes=[outcome(item, "a")])
    for _ in range(2):
        await world.manager.output.stream.step()
        world.clock.step(31)
    answer = await world.read.get(f"/tasks/{task_id}/stream")
    (end,) = events(answer.content)
    assert json.loads(end["data"])["result"] == "a"


@pytest.mark.parametrize("cancels", [True, False])
async def test_who_hangs_up_may_end_the_work(world: World, cancels: bool) -> None:
    worker, task_id, item = await started(world)
    path = f"/tasks/{task_id}/stream"
    query = f"cancel_on_disconnect={str(cancels).lower()}"
    listener = Listener(world.app, path, world.submit, query=query)
    await worker.report(output=[part(item, 1, "a")])
    assert b'data: "a"' in listener.body
    await listener.hang_up()
    await quiet()
    expected = "cancelled" if cancels else "queued"
    assert await world.submit.status(task_id) == expected
    told = (await worker.report()).json()
    assert told["drop"] == ([[task_id, 1]] if cancels else [])


async def test_a_stop_of_the_manager_ends_no_work(world: World) -> None:
    worker, task_id, item = await started(world)
    path = f"/tasks/{task_id}/stream"
    query = "cancel_on_disconnect=true"
    listener = Listener(world.app, path, world.submit, query=query)
    await worker.report(output=[part(item, 1, "a")])
    world.manager.release()
    await listener.ended()
    await quiet()
    assert "end" not in [event.get("event") for event in events(listener.body)]
    assert await world.submit.status(task_id) == "queued"


async def test_wrong_cursors_and_tasks_are_refused(world: World) -> None:
    _, task_id, _ = await started(world)
    for kind in ("stream", "output"):
        answer = await world.read.get(f"/tasks/{task_id}/{kind}", after="later")
        assert fault(answer, 422, "invalid_field")["details"] == {"field": "after"}
        fault(await world.read.get(f"/tasks/nobody/{kind}"), 404, "task_not_found")
    asked = {"cancel_on_disconnect": True}
    answer = await world.read.get(f"/tasks/{task_id}/stream", **asked)
    fault(answer, 403, "forbidden")
