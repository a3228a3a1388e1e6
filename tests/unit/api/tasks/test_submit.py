"""Submitting: one, many, the same twice; and what comes back."""

from __future__ import annotations

import pytest

from tests.unit.api.world import World, fault, quiet, said


@pytest.fixture(autouse=True)
async def echo(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})


@pytest.mark.spec("C5")
async def test_a_submitted_task_is_answered_with_its_id_and_state(world: World) -> None:
    answer = await world.submit.post("/tasks", {"task_type": "echo"})
    assert answer.status_code == 201
    told = answer.json()
    assert set(told) == {
        "task_id",
        "status",
        "estimated_wait_time",
        "assigned_worker",
        "created_at",
    }
    assert told["status"] == "queued"
    assert told["assigned_worker"] is None
    task = await world.read.task(told["task_id"])
    assert (task["status"], task["parameters"]) == ("queued", {})


async def test_a_task_that_finds_a_free_worker_is_assigned_in_the_same_moment(
    world: World,
) -> None:
    worker = await world.worker("echo")
    told = await world.submit.tell("/tasks", {"task_type": "echo"})
    assert told["assigned_worker"] == worker.id
    assert told["status"] == "queued", "the documents know no assigned"
    assert (await world.read.task(told["task_id"]))["state"] == "assigned"
    assert [name for name, _ in world.store.calls].count("place_tasks") == 0


async def test_everything_a_task_may_say_is_kept(world: World) -> None:
    other = await world.submit.submit()
    task_id = await world.submit.submit(
        parameters=[1, "two", None],
        task_id="my.task:1",
        model_name="llama-3",
        priority="critical",
        timeout=12.5,
        retries=3,
        run_after="2026-01-01T00:01:00+01:00",
        deadline=3600,
        idempotency_key="key-1",
        labels={"team": "red", "run": "7"},
        depends_on=[other, other],
        overlap="never",
    )
    task = await world.read.task(task_id)
    assert task["task_id"] == "my.task:1"
    assert task["parameters"] == [1, "two", None]
    assert task["model_name"] == "llama-3"
    assert (task["priority"], task["timeout"], task["retries"]) == (100, 12.5, 3)
    assert task["run_after"] == "2025-12-31T23:01:00Z"
    assert task["deadline"] == "2026-01-01T01:00:00Z"
    assert task["idempotency_key"] == "key-1"
    assert task["labels"] == {"team": "red", "run": "7"}
    assert task["depends_on"] == [other]
    assert (task["attempt"], task["run"], task["tries"], task["losses"]) == (1, 1, 0, 0)


async def test_job_type_and_payload_are_other_names_for_the_same(world: World) -> None:
    body = {"job_type": "echo", "payload": {"a": 1}}
    told = await world.submit.tell("/tasks", body)
    task = await world.read.task(told["task_id"])
    assert (task["task_type"], task["parameters"]) == ("echo", {"a": 1})


@pytest.mark.parametrize("value", [None, 0, "", [], {}, False, 1.5, {"a": [None]}])
async def test_any_json_value_can_be_a_payload(world: World, value: object) -> None:
    task_id = await world.submit.submit(parameters=value)
    assert (await world.read.task(task_id))["parameters"] == value


async def test_a_timeout_is_set_where_none_is_asked_for(world: World) -> None:
    task_id = await world.submit.submit()
    assert (await world.read.task(task_id))["timeout"] == 300.0


@pytest.mark.spec("C52")
async def test_the_same_id_twice_is_one_task(world: World) -> None:
    body = {"task_type": "echo", "task_id": "mine", "parameters": 1}
    first = await world.submit.post("/tasks", body)
    again = await world.submit.post("/tasks", {**body, "parameters": 2})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["task_id"] == "mine"
    assert (await world.read.task("mine"))["parameters"] == 1
    assert (await world.read.ask("/tasks"))["total"] == 1


async def test_an_ended_id_sent_again_answers_with_how_it_ended(world: World) -> None:
    worker = await world.worker("echo")
    await world.submit.submit(task_id="mine")
    await worker.finish(worker.take_one(), 7)
    answer = await world.submit.post("/tasks", {"task_type": "echo", "task_id": "mine"})
    assert answer.status_code == 200
    assert answer.json()["status"] == "completed"
    await quiet()
    assert worker.take() == [], "it does not run again"


@pytest.mark.spec("C52")
async def test_the_same_idempotency_key_is_one_task_in_header_or_field(
    world: World,
) -> None:
    body = {"task_type": "echo"}
    headers = {"Idempotency-Key": "once"}
    first = await world.submit.post("/tasks", body, headers=headers)
    again = await world.submit.post("/tasks", body, headers=headers)
    third = await world.submit.post("/tasks", {**body, "idempotency_key": "once"})
    assert [a.status_code for a in (first, again, third)] == [201, 200, 200]
    assert len({a.json()["task_id"] for a in (first, again, third)}) == 1
    other = await world.admin.post("/tasks", {**body, "idempotency_key": "once"})
    assert other.status_code == 201, "another key's keys are its own"


async def test_a_repeated_task_leaves_no_worker_waiting_for_it(world: World) -> None:
    worker = await world.worker("echo")
    headers = {"Idempotency-Key": "once"}
    body = {"task_type": "echo"}
    said(await world.submit.post("/tasks", body, headers=headers))
    await worker.finish(worker.take_one())
    said(await world.submit.post("/tasks", body, headers=headers))
    task_id = await world.submit.submit()
    assert worker.take_one()["task_id"] == task_id


async def test_a_batch_gives_an_id_for_each_in_order(world: World) -> None:
    rows = [{"task_type": "echo", "task_id": f"t{n}"} for n in range(500)]
    answer = await world.submit.post("/tasks/batch", {"tasks": rows})
    assert answer.status_code == 201
    told = answer.json()
    assert told["task_ids"] == [f"t{n}" for n in range(500)]
    assert (told["accepted"], told["refused"], told["errors"]) == (500, 0, [])
    inserts = [rows for name, rows in world.store.calls if name == "insert_tasks"]
    assert inserts == [500], "one statement for all"


async def test_an_empty_batch_is_fine(world: World) -> None:
    told = await world.submit.tell("/tasks/batch", {"tasks": []})
    assert told == {"task_ids": [], "errors": [], "accepted": 0, "refused": 0}


async def test_repeats_within_a_batch_are_one_task(world: World) -> None:
    row = {"task_type": "echo"}
    rows = [
        {**row, "task_id": "a"},
        {**row, "task_id": "a"},
        {**row, "idempotency_key": "k"},
        {**row, "idempotency_key": "k"},
    ]
    told = await world.submit.tell("/tasks/batch", {"tasks": rows})
    ids = told["task_ids"]
    assert (ids[0], ids[2]) == (ids[1], ids[3])
    assert told["accepted"] == 4
    assert (await world.read.ask("/tasks"))["total"] == 2


async def test_a_batch_may_depend_on_its_own_earlier_tasks(world: World) -> None:
    row = {"task_type": "echo"}
    rows = [{**row, "task_id": "a"}, {**row, "task_id": "b", "depends_on": ["a"]}]
    told = await world.submit.tell("/tasks/batch", {"tasks": rows})
    assert told["refused"] == 0
    late = [{**row, "task_id": "c", "depends_on": ["d"]}, {**row, "task_id": "d"}]
    told = await world.submit.tell("/tasks/batch", {"tasks": late})
    assert [e["index"] for e in told["errors"]] == [0]


async def test_a_task_that_depends_on_a_refused_one_is_refused_too(
    world: World,
) -> None:
    rows = [
        {"task_type": "nope", "task_id": "a"},
        {"task_type": "echo", "depends_on": ["a"]},
    ]
    told = await world.submit.tell("/tasks/batch", {"tasks": rows})
    assert [e["code"] for e in told["errors"]] == ["unknown_task_type", "invalid_field"]


async def test_more_than_100000_tasks_in_a_batch_are_refused(world: World) -> None:
    body = b'{"tasks":[' + b",".join([b"1"] * 100_001) + b"]}"
    answer = await world.submit.post("/tasks/batch", body)
    assert fault(answer, 422, "invalid_field")["details"]["field"] == "tasks"
