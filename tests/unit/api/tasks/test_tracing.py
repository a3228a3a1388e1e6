"""The id of a request: taken or made, kept with its tasks, told to workers."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from corral.log_line import LineFormatter, Redaction
from tests.unit.api.world import Json, World, fault, quiet, said

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"
ECHO = {"task_type": "echo"}
MADE = re.compile(r"[0-9a-f]{32}")


async def submit(world: World, **headers: str) -> Json:
    answer = await world.submit.post("/tasks", ECHO, headers=headers)
    task = await world.read.task(said(answer)["task_id"])
    assert answer.headers["x-request-id"] == task["request_id"]
    return task


@pytest.mark.spec("C44")
async def test_a_task_keeps_the_id_of_its_request_and_its_worker_is_told(
    world: World,
) -> None:
    worker = await world.worker()
    task = await submit(world, **{"X-Request-ID": "ann-1", "traceparent": PARENT})
    assert task["request_id"] == "ann-1"
    assert task["labels"] == {}
    item = worker.take_one()
    assert (item["request_id"], item["traceparent"]) == ("ann-1", PARENT)
    assert "labels" not in item
    await worker.fail(item)
    said(await world.submit.post(f"/tasks/{task['task_id']}/requeue"))
    await quiet()
    assert worker.take_one()["request_id"] == "ann-1"


async def test_without_an_id_that_of_the_trace_is_taken(world: World) -> None:
    await world.worker()
    task = await submit(world, traceparent=PARENT)
    assert task["request_id"] == TRACE_ID


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Request-ID": "with blanks in it"},
        {"X-Request-ID": "x" * 65},
        {"traceparent": f"ff-{TRACE_ID}-00f067aa0ba902b7-01"},
        {"traceparent": f"00-{'0' * 32}-00f067aa0ba902b7-01"},
        {"traceparent": f"00-{TRACE_ID}-{'0' * 16}-01"},
        {"traceparent": "nonsense"},
    ],
)
async def test_an_id_is_made_where_none_makes_sense(
    world: World, headers: dict[str, str]
) -> None:
    worker = await world.worker()
    task = await submit(world, **headers)
    assert MADE.fullmatch(task["request_id"])
    item = worker.take_one()
    assert item["request_id"] == task["request_id"]
    assert "traceparent" not in item


async def test_tasks_of_a_batch_are_found_by_the_id_of_their_request(
    world: World,
) -> None:
    await world.worker()
    rows = [ECHO, {**ECHO, "labels": {"team": "red"}}, {**ECHO, "preemptible": True}]
    headers = {"X-Request-ID": "batch-7"}
    made = said(
        await world.submit.post("/tasks/batch", {"tasks": rows}, headers=headers)
    )
    await submit(world)
    found = await world.read.ask("/tasks", request_id="batch-7")
    assert {row["task_id"] for row in found["tasks"]} == set(made["task_ids"])
    assert found["total"] == 3
    assert (await world.read.ask("/tasks", request_id="nobody"))["total"] == 0


async def test_nobody_sets_the_id_as_a_label(world: World) -> None:
    task = {**ECHO, "labels": {"corral.request": "mine"}}
    fault(await world.submit.post("/tasks", task), 422, "invalid_field")


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What the manager would write, at its most talkative."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter("json", Redaction()))
    log = logging.getLogger("corral")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    yield stream
    log.setLevel(level)
    log.removeHandler(handler)


@pytest.mark.spec("C44")
async def test_each_run_of_a_schedule_has_an_id_that_its_task_and_lines_share(
    world: World, lines: io.StringIO
) -> None:
    worker = await world.worker()
    schedule = {"name": "hourly", "cron": "0 * * * *", "task": ECHO}
    made = {"X-Request-ID": "who-made-it"}
    said(await world.operate.post("/schedules", schedule, headers=made))
    ids = []
    for _ in range(2):
        world.clock.step(3600)
        await world.manager.queues.schedules.fire()
        item = worker.take_one()
        task = await world.read.task(item["task_id"])
        assert item["request_id"] == task["request_id"]
        ids.append(task["request_id"])
        await worker.finish(item)
    assert len({*ids, "who-made-it"}) == 3
    said_of = [json.loads(line) for line in lines.getvalue().splitlines()]
    for name in ids:
        events = [e["event"] for e in said_of if e.get("request_id") == name]
        for event in ("task_submitted", "schedule_fired", "task_ended"):
            assert events.count(event) == 1, events
    fired = [e["schedule"] for e in said_of if e["event"] == "schedule_fired"]
    assert fired == ["hourly", "hourly"]


async def test_a_run_beside_the_plan_came_with_the_request_that_asked_for_it(
    world: World,
) -> None:
    await world.worker()
    schedule = {"name": "hourly", "cron": "0 * * * *", "task": ECHO}
    said(await world.operate.post("/schedules", schedule))
    asked = {"X-Request-ID": "now-please", "traceparent": PARENT}
    ran = said(await world.operate.post("/schedules/hourly/run", headers=asked))
    assert (await world.read.task(ran["task_id"]))["request_id"] == "now-please"


async def test_lines_about_tasks_of_one_commit_have_each_its_own_id(
    world: World, lines: io.StringIO
) -> None:
    worker = await world.worker()
    ids = [f"r-{number}" for number in range(20)]
    tasks = await asyncio.gather(
        *(submit(world, **{"X-Request-ID": name}) for name in ids)
    )
    mine = {task["task_id"]: task["request_id"] for task in tasks}
    assert sorted(mine.values()) == sorted(ids)
    for _ in ids:
        await worker.finish(worker.take_one())
    seen: dict[str, set[str]] = {}
    for line in lines.getvalue().splitlines():
        event = json.loads(line)
        if event.get("task_id") in mine:
            assert event["request_id"] == mine[event["task_id"]], event
            seen.setdefault(event["event"], set()).add(event["request_id"])
    for name in ("task_submitted", "task_scheduled", "task_ended"):
        assert seen[name] == set(ids)
