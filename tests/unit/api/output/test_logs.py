"""Logs: pages and events, woken by what comes; attempts, tails, the end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from corral.manager.output.logs import PAGE_BYTES
from tests.unit.api.world import FakeWorker, World, fault, outcome, quiet


def chunk(task_id: str, first: int, last: int, attempt: int = 1) -> dict[str, Any]:
    """Lines `first` to `last`, as a worker sends them: many in one text."""
    text = "\n".join(f"line {n}" for n in range(first, last + 1))
    lines = [[1.5, "stdout", text]]
    return {"task_id": task_id, "attempt": attempt, "seq": last, "lines": lines}


def texts(told: dict[str, Any]) -> list[str]:
    return [line["text"] for line in told["lines"]]


def numbered(first: int, last: int) -> list[str]:
    return [f"line {n}" for n in range(first, last + 1)]


def events(body: str) -> list[dict[str, str]]:
    rows = [event.split("\n") for event in body.strip().split("\n\n")]
    return [dict(row.split(": ", 1) for row in event) for event in rows]


async def started(world: World, **more: Any) -> tuple[FakeWorker, str, dict[str, Any]]:
    worker = await world.worker("echo")
    task_id = await world.submit.submit(**more)
    return worker, task_id, worker.take_one()


async def test_a_waiting_reader_is_woken_by_a_line_and_by_the_end(
    world: World,
) -> None:
    worker, task_id, item = await started(world)
    path = f"/tasks/{task_id}/logs"
    poll = asyncio.create_task(world.read.ask(path, wait=60))
    await quiet()
    assert not poll.done()
    await worker.report(logs=[chunk(task_id, 1, 3)])
    told = await asyncio.wait_for(poll, 60)
    assert (texts(told), told["done"]) == (numbered(1, 3), False)
    poll = asyncio.create_task(world.read.ask(path, wait=60, after=told["cursor"]))
    await quiet()
    assert not poll.done()
    await worker.finish(item)
    told = await asyncio.wait_for(poll, 60)
    assert (told["lines"], told["done"], told["status"]) == ([], True, "completed")


async def test_a_reader_may_wait_for_progress_as_well(world: World) -> None:
    worker, task_id, _ = await started(world)
    path = f"/tasks/{task_id}/logs"
    poll = asyncio.create_task(world.read.ask(path, wait=60, progress=-1))
    await quiet()
    await worker.report(progress=[[task_id, 1, 0.25, "reading"]])
    told = await asyncio.wait_for(poll, 60)
    assert told["progress"] == {"fraction": 0.25, "message": "reading"}
    poll = asyncio.create_task(world.read.ask(path, wait=60, progress=0.25))
    await quiet()
    assert not poll.done()
    await worker.report(progress=[[task_id, 1, 0.5, ""]])
    assert (await asyncio.wait_for(poll, 60))["progress"]["fraction"] == 0.5


async def test_a_place_in_the_log_may_lie_inside_a_chunk(world: World) -> None:
    worker, task_id, item = await started(world)
    pieces = [chunk(task_id, 1, 5), chunk(task_id, 6, 10)]
    await worker.report(logs=pieces, outcomes=[outcome(item)])
    for line in range(11):
        told = await world.read.ask(f"/tasks/{task_id}/logs", after=f"1:{line}")
        assert texts(told) == numbered(line + 1, 10)
        assert told["done"]


async def test_a_long_log_comes_in_pages_and_is_done_with_the_last(
    world: World,
) -> None:
    worker, task_id, item = await started(world)
    many = [chunk(task_id, n + 1, n + 5000) for n in range(0, 50_000, 5000)]
    await worker.report(logs=many, outcomes=[outcome(item)])
    seen: list[str] = []
    told: dict[str, Any] = {"cursor": "0:0", "done": False}
    pages = 0
    while not told["done"]:
        told = await world.read.ask(f"/tasks/{task_id}/logs", after=told["cursor"])
        seen += texts(told)
        pages += 1
    assert seen == numbered(1, 50_000)
    size = len(json.dumps(many[0]["lines"]))
    assert pages <= len(many) * size // PAGE_BYTES + 1


async def test_attempts_and_tails_can_be_asked_for(world: World) -> None:
    worker, task_id, item = await started(world, retries=1)
    await worker.report(logs=[chunk(task_id, 1, 4), chunk(task_id, 5, 6)])
    path = f"/tasks/{task_id}/logs"
    poll = asyncio.create_task(world.read.ask(path, attempt=1, after="1:6", wait=60))
    await quiet()
    await worker.fail(item)
    # Another attempt begins: of this one nothing more will come.
    assert (await asyncio.wait_for(poll, 60))["done"]
    await world.step(2, worker.node)
    item = worker.take_one()
    await worker.report(
        logs=[chunk(task_id, 1, 3, attempt=2)], outcomes=[outcome(item)]
    )

    async def ask(**query: Any) -> list[str]:
        told = await world.read.ask(path, **query)
        return [f"{line['attempt']} {line['text']}" for line in told["lines"]]

    first, second = ([f"{a} line {n}" for n in range(1, 7)] for a in (1, 2))
    assert await ask() == first + second[:3]
    assert await ask(attempt=1) == first
    assert await ask(attempt=2) == second[:3]
    assert await ask(attempt=3) == []
    assert await ask(tail=2) == second[1:3]
    assert await ask(tail=100) == second[:3]
    assert await ask(tail=0) == []
    assert await ask(tail=3, attempt=1) == first[3:]


async def test_events_have_the_lines_their_places_and_the_end(world: World) -> None:
    worker, task_id, item = await started(world)
    await worker.report(
        logs=[chunk(task_id, 1, 2), chunk(task_id, 3, 3)], outcomes=[outcome(item)]
    )
    path = f"/tasks/{task_id}/logs/stream"
    answer = await world.read.get(path)
    assert answer.headers["content-type"].startswith("text/event-stream")
    told = events(answer.text)
    assert [event.get("id") for event in told] == ["1:1", "1:2", "1:3", None]
    assert json.loads(told[0]["data"]) == {
        "attempt": 1,
        "at": 1.5,
        "stream": "stdout",
        "text": "line 1",
    }
    assert told[3] == {"event": "end", "data": '{"status":"completed"}'}
    again = await world.read.send("GET", path, headers={"Last-Event-ID": "1:2"})
    assert events(again.text) == told[2:]
    assert events((await world.read.get(path, after="1:3")).text) == told[3:]
    assert events((await world.read.get(path, tail=1)).text) == told[2:]


async def test_events_go_on_until_the_end_and_stop_with_the_manager(
    world: World,
) -> None:
    worker, task_id, item = await started(world)
    path = f"/tasks/{task_id}/logs/stream"
    stream = asyncio.create_task(world.read.get(path))
    await quiet()
    await worker.report(
        progress=[[task_id, 1, 0.5, "half"]], logs=[chunk(task_id, 1, 1)]
    )
    await quiet()
    await worker.report(logs=[chunk(task_id, 2, 2)], outcomes=[outcome(item)])
    told = events(
        (await asyncio.wait_for(stream, 60)).text.replace(": still here\n\n", "")
    )
    kinds = [event.get("event") or event["id"] for event in told]
    assert sorted(kinds) == ["1:1", "1:2", "end", "progress"]
    assert kinds[-1] == "end"
    other = await world.submit.submit()
    stream = asyncio.create_task(world.read.get(f"/tasks/{other}/logs/stream"))
    await quiet()
    world.manager.release()
    assert "event: end" not in (await asyncio.wait_for(stream, 60)).text


@pytest.mark.parametrize("query", ["after=x", "attempt=0", "tail=-1"])
async def test_a_wrong_place_in_a_stream_is_named(world: World, query: str) -> None:
    _, task_id, _ = await started(world)
    answer = await world.read.get(f"/tasks/{task_id}/logs/stream?{query}")
    field = fault(answer, 422, "invalid_field")["details"]["field"]
    assert field == query.partition("=")[0]


async def test_a_stream_of_an_unknown_task_is_refused(world: World) -> None:
    for task_id in ("nobody", "no%20body"):
        answer = await world.read.get(f"/tasks/{task_id}/logs/stream")
        fault(answer, 404, "task_not_found")
