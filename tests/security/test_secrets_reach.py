"""Who gets a secret, and by whose rules a task runs that names its worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.api.world import FakeWorker, Json, World, declared, fault, running, said

VALUE = "s3cr3t-Value/42"
SCRIPT: Json = {"command": ["true"], "secrets": ["TOKEN"]}
STRICT = {"properties": {"command": {"const": ["true"]}}}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as made:
        yield made


async def script_worker(world: World, *job_types: str) -> FakeWorker:
    told = declared("one", *job_types) | {"worker_class": "corral:RunScriptWorker"}
    node = await world.node(told)
    return await node.workers["one"].start()


async def keep(world: World, **only: Any) -> None:
    said(await world.admin.post("/secrets", {"name": "TOKEN", "value": VALUE, **only}))


async def ask(worker: FakeWorker, item: Json) -> Any:
    """What the node that holds an attempt is given for it."""
    body = {"task_id": item["task_id"], "attempt": item["attempt"]}
    return await worker.node.caller.post(f"/workers/{worker.id}/secrets", body)


@pytest.mark.parametrize("named", ["anything", "deploy"])
async def test_h2_a_schema_holds_for_whoever_names_the_worker(
    world: World, named: str
) -> None:
    worker = await script_worker(world, "run_script")
    await world.worker("deploy")
    schema = {"name": "run_script", "input_schema": STRICT}
    said(await world.admin.post("/job-types", schema))
    forbidden = {"task_type": named, "only_on": worker.id, "priority": 5}
    attack = {**forbidden, "parameters": {"command": ["id"]}}
    fault(await world.submit.post("/tasks", attack), 422, "invalid_field")
    job = {"schema_name": named, "payload": {"command": ["id"]}}
    run = {"worker_id": worker.id, "job": job}
    fault(await world.submit.post("/run_on_worker", run), 422, "invalid_field")
    assert worker.take() == []
    own = {**forbidden, "task_type": "run_script", "parameters": {"command": ["true"]}}
    said(await world.submit.post("/tasks", own))
    worker.take_one()


@pytest.mark.parametrize("named", ["deploy", "anything"])
@pytest.mark.parametrize("spelled", ["secrets", "\\u0073ecrets"])
async def test_h2_a_secret_of_one_type_is_not_had_through_another(
    world: World, named: str, spelled: str
) -> None:
    worker = await script_worker(world, "run_script")
    if named == "deploy":
        await script_worker(world, "deploy")
    await keep(world, job_types=["deploy"])
    body = (
        f'{{"task_type": "{named}", "only_on": "{worker.id}", '
        f'"parameters": {{"command": ["true"], "{spelled}": ["TOKEN"]}}}}'
    )
    answer = await world.submit.post("/tasks", body.encode())
    fault(answer, 422, "invalid_field")
    assert worker.take() == []


async def test_h2_a_worker_that_came_to_other_types_gets_no_value(world: World) -> None:
    """Also where nobody could judge at submit: a class of the node's own."""
    worker = await world.worker("free")
    await keep(world, job_types=["deploy"])
    task = {"task_type": "made_up", "only_on": worker.id, "parameters": SCRIPT}
    said(await world.submit.post("/tasks", task))
    fault(await ask(worker, worker.take_one()), 422, "invalid_field")


async def test_h2_a_worker_of_no_type_gets_no_value_of_any(world: World) -> None:
    """It is called by its URL, and takes jobs under every name."""
    bare = declared("one") | {"job_types": [], "url": "http://h:9000"}
    node = await world.node(bare)
    worker = await node.workers["one"].start()
    await script_worker(world, "deploy")
    await keep(world, job_types=["deploy"])
    for named in ("deploy", "made_up"):
        task = {"task_type": named, "only_on": worker.id, "parameters": SCRIPT}
        said(await world.submit.post("/tasks", task))
        item = worker.take_one()
        fault(await ask(worker, item), 422, "invalid_field")
        await worker.finish(item)


async def test_h2_a_secret_is_for_the_keys_that_it_names(world: World) -> None:
    worker = await script_worker(world, "run_script")
    task = {"task_type": "run_script", "parameters": SCRIPT}
    unknown = fault(await world.operate.post("/tasks", task), 422, "invalid_field")
    await keep(world, keys=["submit"])
    answer = await world.operate.post("/tasks", task)
    # In the words for one that does not exist: a name is not to be guessed.
    assert fault(answer, 422, "invalid_field")["message"] == unknown["message"]
    assert said(await world.operate.get("/secrets")) == {"secrets": []}
    assert said(await world.submit.get("/secrets"))["secrets"]
    # A new value does not open it to others.
    await keep(world)
    fault(await world.operate.post("/tasks", task), 422, "invalid_field")
    said(await world.submit.post("/tasks", task))
    assert said(await ask(worker, worker.take_one())) == {"values": {"TOKEN": VALUE}}
    body = {"name": "TOKEN", "value": VALUE, "keys": ["nobody-there"]}
    fault(await world.admin.post("/secrets", body), 422, "invalid_field")


async def test_h2_what_a_secret_made_is_not_answered_to_another(world: World) -> None:
    worker = await script_worker(world, "deploy")
    cached = {"name": "deploy", "cache_ttl_s": 3600}
    said(await world.admin.post("/job-types", cached))
    await keep(world)
    for _ in range(2):
        task = {"task_type": "deploy", "parameters": SCRIPT}
        said(await world.submit.post("/tasks", task))
        await worker.finish(worker.take_one(), {"printed": VALUE})


async def test_h3_a_secret_goes_to_no_node_by_its_own_word(world: World) -> None:
    await keep(world, node_labels={"zone": "trusted"})
    worker = await script_worker(world, "run_script")
    path = f"/nodes/{worker.node.id}"
    body = {
        "hostname": "h",
        "labels": {"zone": "trusted"},
        "workers": [
            declared("one", "run_script") | {"worker_class": "corral:RunScriptWorker"}
        ],
    }
    told = said(await worker.node.caller.post(f"{path}/register", body))
    worker.node.epoch = told["epoch"]
    await worker.start()
    said(
        await world.submit.post(
            "/tasks", {"task_type": "run_script", "parameters": SCRIPT}
        )
    )
    item = worker.take_one()
    fault(await ask(worker, item), 422, "invalid_field")
    labels = {"labels": {"zone": "trusted"}}
    said(await world.operate.send("PATCH", path, json=labels))
    assert said(await ask(worker, item)) == {"values": {"TOKEN": VALUE}}


async def test_h3_a_task_waits_for_a_node_that_its_secret_may_go_to(
    world: World,
) -> None:
    await keep(world, node_labels={"zone": "trusted"})
    worker = await script_worker(world, "run_script")
    task = {"task_type": "run_script", "parameters": SCRIPT}
    other = {**task, "node_labels": {"zone": "elsewhere"}}
    fault(await world.submit.post("/tasks", other), 422, "invalid_field")
    said(await world.submit.post("/tasks", task))
    assert worker.take() == []
