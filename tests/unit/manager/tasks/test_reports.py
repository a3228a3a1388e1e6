"""Reports: stale, repeated and foreign ones change nothing; orders come in answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.api.world import World, declared, fault, outcome, quiet, said


@pytest.mark.spec("C52")
async def test_a_repeated_report_gets_the_same_answer_and_changes_nothing(
    world: World,
) -> None:
    worker = await world.worker("echo")
    await world.submit.submit()
    second = await world.submit.submit()
    item = worker.take_one()
    body: dict[str, Any] = {"outcomes": [outcome(item, 1)], "wants_order": True}
    first = said(await worker.report("r-1", **body))
    again = said(await worker.report("r-1", **body))
    assert first == again
    assert worker.read(first["order"])["items"][0]["task_id"] == second
    assert worker.take() == [], "the order was given once"
    told = await world.read.ask(f"/workers/{worker.id}")
    assert told["performance_metrics"]["tasks_completed"] == 1


async def test_a_report_repeated_while_the_first_is_under_way_waits_for_it(
    world: World,
) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    item = worker.take_one()
    reached, release = world.store.hold("settle_tasks")
    both = [
        asyncio.create_task(worker.report("r-1", outcomes=[outcome(item, n)]))
        for n in (1, 2)
    ]
    await reached.wait()
    await quiet()
    release.set()
    answers = [said(await one) for one in both]
    assert answers[0] == answers[1]
    assert (await world.read.task(task_id))["result"] == 1


@pytest.mark.spec("C52")
async def test_an_outcome_of_an_old_attempt_is_dropped(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit(retries=1)
    old = worker.take_one()
    await worker.fail(old)
    await world.step(5, worker.node)
    new = worker.take_one()
    await worker.finish(old, "too late")
    assert (await world.read.task(task_id))["state"] == "assigned"
    await worker.finish(new, "right")
    assert (await world.read.task(task_id))["result"] == "right"


async def test_a_result_is_recorded_once_however_often_it_comes(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    item = worker.take_one()
    await worker.finish(item, "first")
    await worker.finish(item, "second")
    await worker.fail(item)
    task = await world.read.task(task_id)
    assert (task["status"], task["result"]) == ("completed", "first")
    settled = await world.read.ask("/events", task_id=task_id)
    kinds = [e["event_type"] for e in settled["events"]]
    assert kinds.count("tasks_settled") == 1


async def test_a_worker_cannot_end_start_or_describe_anothers_task(
    world: World,
) -> None:
    owner = await world.worker("echo")
    task_id = await world.submit.submit()
    item = owner.take_one()
    node = await world.node(declared("other", "other"))
    thief = await node.workers["other"].start()
    chunk = {"task_id": task_id, "attempt": 1, "seq": 1, "lines": [[1, "stdout", "x"]]}
    said(
        await thief.report(
            outcomes=[outcome(item, "stolen")],
            started=[[task_id, 1, 1.0]],
            progress=[[task_id, 1, 0.5, "mine"]],
            logs=[chunk, {**chunk, "task_id": "never-seen"}],
        )
    )
    task = await world.read.task(task_id)
    assert (task["state"], task["progress"]) == ("assigned", None)
    assert (await world.read.ask(f"/tasks/{task_id}/logs"))["lines"] == []


async def test_last_words_that_come_after_the_outcome_are_kept(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    await worker.finish(worker.take_one())
    chunk = {"task_id": task_id, "attempt": 1, "seq": 1, "lines": [[1, "stdout", "x"]]}
    said(await worker.report(logs=[chunk]))
    lines = (await world.read.ask(f"/tasks/{task_id}/logs"))["lines"]
    assert [line["text"] for line in lines] == ["x"]


async def test_the_words_of_a_failed_attempt_are_kept_while_the_next_runs(
    world: World,
) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit(retries=1)
    await worker.fail(worker.take_one())
    chunk = {"task_id": task_id, "attempt": 1, "seq": 1, "lines": [[1, "stdout", "x"]]}
    said(await worker.report(logs=[chunk]))
    assert (await world.read.ask(f"/tasks/{task_id}/logs"))["lines"]


async def test_reports_of_a_former_incarnation_are_refused(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    item = worker.take_one()
    old = worker.incarnation
    await worker.register(pid=4001)
    new, worker.incarnation = worker.incarnation, old
    fault(await worker.report(outcomes=[outcome(item)]), 409, "conflict")
    worker.incarnation = new
    assert await world.read.status(task_id) == "queued"
    said(await worker.report(state="ready"))
    assert worker.take_one()["attempt"] == 2


async def test_the_next_order_travels_in_the_answer(world: World) -> None:
    worker = await world.worker("echo")
    await world.submit.submit()
    second = await world.submit.submit(parameters={"n": 2})
    item = worker.take_one()
    told = await worker.finish(item, wants_order=True)
    (next_item,) = worker.read(told["order"])["items"]
    assert (next_item["task_id"], next_item["payload"]) == (second, {"n": 2})
    assert worker.take() == []


async def test_a_worker_that_wants_an_order_gets_none_at_once_when_nothing_waits(
    world: World,
) -> None:
    worker = await world.worker("echo")
    async with asyncio.timeout(60):
        told = said(await worker.report(wants_order=True))
    assert told["order"] is None


async def test_a_started_task_is_running_with_its_start_time(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    item = worker.take_one()
    await worker.begin(item)
    task = await world.read.task(task_id)
    assert (task["status"], task["started_at"]) == ("running", "2026-01-01T00:00:00Z")
    assert (task["worker_id"], task["node_id"]) == (worker.id, worker.node.id)
    await worker.begin(item)
    assert await world.read.status(task_id) == "running"


async def test_a_returned_task_goes_back_uncharged(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    item = worker.take_one()
    said(await worker.report(outcomes=[outcome(item, kind="returned")]))
    again = worker.take_one()
    assert (again["task_id"], again["attempt"]) == (task_id, 2)
    task = await world.read.task(task_id)
    assert (task["tries"], task["losses"]) == (0, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"outcomes": [{"task_id": "t", "attempt": 1, "kind": "exploded"}]},
        {"outcomes": [{"task_id": "t", "attempt": "one", "kind": "failed"}]},
        {
            "outcomes": [
                {"task_id": "t", "attempt": 1, "kind": "failed", "started_at": 1e300}
            ]
        },
        {"started": [["t", 1, 1e300]]},
        {"started": [["t", 1]]},
        {"state": "tired"},
        {"logs": [{"task_id": "t", "attempt": 1, "seq": 1, "lines": [["now", 1]]}]},
        {"logs": [{"task_id": "t", "attempt": 1, "seq": 1, "lines": "x"}]},
        {"progress": [["t", 1, "half", ""]]},
    ],
)
async def test_a_report_of_a_wrong_shape_is_refused_and_named(
    world: World, wrong: dict[str, Any]
) -> None:
    worker = await world.worker("echo")
    fault(await worker.report(**wrong), 422, "invalid_field")


async def test_outcomes_of_many_workers_share_a_commit(world: World) -> None:
    worker = await world.worker("echo", concurrency=10)
    for _ in range(10):
        await world.submit.submit()
    items = worker.take()
    assert len(items) == 10
    reached, release = world.store.hold("settle_tasks")
    world.store.calls.clear()
    reports = [asyncio.create_task(worker.finish(items[0]))]
    await reached.wait()
    reports += [asyncio.create_task(worker.finish(item)) for item in items[1:]]
    await quiet()
    release.set()
    await asyncio.gather(*reports)
    sizes = [rows for name, rows in world.store.calls if name == "settle_tasks"]
    assert sizes == [1, 9], "what came during the first commit joined the second"
