"""What agents say: joining, registering, declaring workers; and what they get wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.api.world import World, declared, fault, said


async def test_a_machine_joins_registers_and_learns_what_to_run(world: World) -> None:
    token = (await world.admin.tell("/join-tokens"))["token"]
    headers = {"Authorization": f"Bearer {token}"}
    answer = await world.nobody.send(
        "POST", "/nodes/join", headers=headers, json={"hostname": "gpu-1"}
    )
    assert answer.status_code == 201
    assert set(answer.json()) == {"node_id", "key"}
    node = await world.node()
    told = await node.register(declared("one", "echo", concurrency=3))
    assert told["epoch"] == 2
    assert {"beat_s", "fence_after_s", "sample_s"} <= set(told)
    assert set(told["engine"]) >= {"direct_url", "username", "password", "database"}
    (wanted,) = told["desired"]["workers"]
    assert (wanted["name"], wanted["concurrency"]) == ("one", 3)
    assert wanted["job_types"] == ["echo"]
    nodes = await world.read.ask("/nodes")
    assert nodes["total"] == 2
    assert {n["hostname"] for n in nodes["nodes"]} == {"gpu-1", "host"}


async def test_the_types_of_a_declared_worker_become_known(world: World) -> None:
    node = await world.node(declared("one", "resize", "crop"))
    await node.register({"name": "two", "worker_class": "mine:RunScriptWorker"})
    names = [j["name"] for j in (await world.read.ask("/job-types"))["job_types"]]
    assert names == ["crop", "resize", "run_script"]


async def test_workers_no_longer_declared_are_gone_and_launched_ones_stay(
    world: World,
) -> None:
    node = await world.node(declared("one"), declared("two"))
    launch = {"worker_class": "a:B", "node_id": node.id}
    (launched,) = (await world.operate.tell("/workers", launch))["workers"]
    before = node.workers["one"].id
    told = await node.register(declared("one"))
    found = {w["worker_id"] for w in told["desired"]["workers"]}
    assert found == {before, launched["worker_id"]}


async def test_a_worker_must_register_in_the_current_epoch(world: World) -> None:
    node = await world.node(declared("one"))
    worker = node.workers["one"]
    body = {"pid": 1, "epoch": node.epoch + 1}
    answer = await node.caller.post(f"/workers/{worker.id}/register", body)
    fault(answer, 409, "conflict")
    told = await worker.register()
    assert told["concurrency"] == 1
    assert told["queue"] == f"w.{node.id}.{worker.id}"
    assert len(bytes.fromhex(told["secret"])) == 32


async def test_each_incarnation_has_another_secret(world: World) -> None:
    node = await world.node(declared("one"))
    worker = node.workers["one"]
    one, two = await worker.register(pid=1), await worker.register(pid=2)
    assert one["incarnation"] != two["incarnation"]
    assert one["secret"] != two["secret"]


GOOD: dict[str, Any] = {"name": "w", "worker_class": "a:B"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"workers": [{**GOOD, "name": ""}]},
        {"workers": [{**GOOD, "name": "a b"}]},
        {"workers": [{**GOOD, "name": "api-x"}]},
        {"workers": [GOOD, GOOD]},
        {"workers": [{**GOOD, "worker_class": "os; rm"}]},
        {"workers": [{**GOOD, "concurrency": 0}]},
        {"workers": [{**GOOD, "job_types": ["a b"]}]},
        {"workers": [{"name": "w"}]},
        {"version": "a\nb"},
        {"labels": {"a": 1}},
    ],
)
async def test_a_registration_of_a_wrong_shape_is_refused_and_costs_no_epoch(
    world: World, wrong: dict[str, Any]
) -> None:
    node = await world.node(declared("one"))
    path = f"/nodes/{node.id}/register"
    answer = await node.caller.post(path, {"hostname": "h", **wrong})
    fault(answer, 422, "invalid_field")
    said(await node.try_beat(node.workers["one"].word()))


@pytest.mark.parametrize(
    "wrong",
    [
        {"epoch": "one"},
        {"workers": [{"worker_id": "w"}]},
        {"workers": [{"worker_id": "w", "state": "tired"}]},
        {"workers": [{"worker_id": "w", "state": "ready", "held": [["t"]]}]},
        {"sample": {"cpu_count": 1}},
    ],
)
async def test_a_beat_of_a_wrong_shape_is_refused(
    world: World, wrong: dict[str, Any]
) -> None:
    node = await world.node()
    body = {"epoch": node.epoch, **wrong}
    answer = await node.caller.post(f"/nodes/{node.id}/beat", body)
    fault(answer, 422, "invalid_field")
