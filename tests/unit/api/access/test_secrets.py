"""/secrets: who may set and see them, and to which worker values are given."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from corral.manager.config import ManagerConfig
from tests.twins.store import MemoryStore
from tests.unit.api.world import Caller, FakeWorker, Json, World, fault, running, said

VALUE = "s3cr3t-Value/42"
SCRIPT: Json = {"command": ["true"], "secrets": {"TOKEN": "HF_TOKEN"}}


async def put(
    who: Caller, value: Any = VALUE, name: str = "HF_TOKEN", **more: Any
) -> httpx.Response:
    return await who.post("/secrets", {"name": name, "value": value, **more})


async def give(worker: FakeWorker, item: Json, **other: Any) -> httpx.Response:
    body = {"task_id": item["task_id"], "attempt": item["attempt"], **other}
    return await worker.node.caller.post(f"/workers/{worker.id}/secrets", body)


async def held(world: World, **script: Any) -> tuple[FakeWorker, Json]:
    """A worker with a script that names a secret."""
    said(await put(world.admin))
    worker = await world.worker("run_script")
    await world.submit.submit("run_script", parameters={**SCRIPT, **script})
    return worker, worker.take_one()


async def test_names_and_dates_are_listed_and_values_never(world: World) -> None:
    answer = await put(world.admin)
    assert answer.status_code == 201
    assert VALUE not in answer.text
    world.clock.step(60)
    assert (await put(world.admin, "another value")).status_code == 200
    answer = await world.read.get("/secrets")
    (row,) = said(answer)["secrets"]
    assert row["name"] == "HF_TOKEN"
    assert row["created_at"] < row["updated_at"]
    assert VALUE not in answer.text
    assert "another value" not in answer.text
    (kept,) = await world.store.access.secrets()
    assert VALUE not in kept.sealed


async def test_only_an_admin_sets_and_removes(world: World) -> None:
    for who in (world.operate, world.submit, world.read):
        fault(await put(who), 403, "forbidden")
        fault(await who.delete("/secrets/HF_TOKEN"), 403, "forbidden")
    said(await put(world.admin))
    said(await world.admin.delete("/secrets/HF_TOKEN"))
    fault(await world.admin.delete("/secrets/HF_TOKEN"), 404, "not_found")
    assert said(await world.read.get("/secrets")) == {"secrets": []}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("9LIVES", VALUE),
        ("CORRAL_API_KEY", VALUE),
        ("A-B", VALUE),
        ("OK", ""),
        ("OK", "a\0b"),
        ("OK", "x" * 70_000),
    ],
)
async def test_what_no_variable_can_hold_is_refused(
    world: World, name: str, value: str
) -> None:
    answer = await put(world.admin, value, name)
    fault(answer, 422, "invalid_field")
    assert not value or value not in answer.text


async def test_a_task_that_names_an_unknown_secret_is_refused_at_once(
    world: World,
) -> None:
    await world.worker("run_script")
    task = {"task_type": "run_script", "parameters": SCRIPT}
    error = fault(await world.submit.post("/tasks", task), 422, "invalid_field")
    assert "no secret 'HF_TOKEN'" in error["message"]
    told = await world.submit.tell("/tasks/batch", {"tasks": [task]})
    assert told["errors"][0]["code"] == "invalid_field"
    said(await put(world.admin))
    said(await world.submit.post("/tasks", task))


async def test_a_secret_for_other_job_types_is_refused(world: World) -> None:
    said(await put(world.admin, job_types=["deploy"]))
    await world.worker("run_script")
    task = {"task_type": "run_script", "parameters": SCRIPT}
    error = fault(await world.submit.post("/tasks", task), 422, "invalid_field")
    assert "no secret 'HF_TOKEN' for tasks of run_script" in error["message"]


@pytest.mark.parametrize("padding", ["", "x" * 5000])
async def test_the_worker_that_holds_the_attempt_gets_what_it_names(
    world: World, padding: str
) -> None:
    """Also of a payload that is too large to be kept in memory."""
    said(await put(world.admin, "not named", "OTHER"))
    worker, item = await held(world, variables={"PAD": padding})
    assert said(await give(worker, item)) == {"values": {"TOKEN": VALUE}}


async def test_a_new_value_is_given_to_the_next_attempt(world: World) -> None:
    worker, item = await held(world)
    await worker.report(outcomes=[{**key(item), "kind": "returned"}])
    said(await put(world.admin, "rotated"))
    again = worker.take_one()
    assert again["attempt"] == item["attempt"] + 1
    assert said(await give(worker, again)) == {"values": {"TOKEN": "rotated"}}
    fault(await give(worker, item), 409, "conflict")


async def test_nobody_else_gets_a_value(world: World) -> None:
    worker, item = await held(world)
    other = await world.worker("run_script")
    fault(await give(other, item), 409, "conflict")
    fault(await give(worker, item, attempt=2), 409, "conflict")
    fault(await give(worker, item, task_id="another"), 409, "conflict")
    path = f"/workers/{worker.id}/secrets"
    fault(await other.node.caller.post(path, key(item)), 403, "forbidden")
    for who in (world.admin, world.operate, world.read):
        fault(await who.post(path, key(item)), 403, "forbidden")
    await worker.finish(item)
    fault(await give(worker, item), 409, "conflict")


async def test_a_former_incarnation_gets_no_value(world: World) -> None:
    worker, item = await held(world)
    await worker.register(pid=4001)
    fault(await give(worker, item), 409, "conflict")


async def test_a_secret_removed_since_is_missed_in_clear_words(world: World) -> None:
    worker, item = await held(world)
    said(await world.admin.delete("/secrets/HF_TOKEN"))
    error = fault(await give(worker, item), 422, "invalid_field")
    assert error["message"].startswith("no secret 'HF_TOKEN'")


async def test_another_cluster_secret_opens_nothing_and_says_so() -> None:
    kept = MemoryStore()
    async with running(inner=kept) as world:
        said(await put(world.admin))
    async with running(ManagerConfig(b"another"), inner=kept) as world:
        await world.worker("run_script")
        assert said(await world.read.get("/secrets"))["secrets"]
        task = {"task_type": "run_script", "parameters": SCRIPT}
        error = fault(await world.submit.post("/tasks", task), 409, "conflict")
        assert "another cluster secret" in error["message"]
        said(await put(world.admin, "set again"))
        said(await world.submit.post("/tasks", task))


async def test_the_trail_says_who_and_when_but_not_what(world: World) -> None:
    worker, item = await held(world)
    said(await give(worker, item))
    await world.manager.access.audit.flush()
    rows = await world.store.access.audit()
    assert {"secret.set", "secret.give"} <= {row.action for row in rows}
    assert VALUE not in json.dumps([dict(row.data) for row in rows])


def key(item: Json) -> Json:
    return {"task_id": item["task_id"], "attempt": item["attempt"]}
