"""What the key of a node is worth, and what a node may say of itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from corral.core.tasks.app import App
from corral.manager.gateway.apps import AppRequests
from corral.wire.job_api import CALL_PASS
from tests.unit.api.target_app import serving
from tests.unit.api.world import (
    Caller,
    FakeNode,
    FakeWorker,
    Json,
    World,
    declared,
    fault,
    running,
    said,
)

SCRIPT: Json = {"command": ["true"], "secrets": ["TOKEN"]}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as made:
        yield made


async def joined(world: World, **granted: Any) -> FakeNode:
    token = (await world.admin.tell("/join-tokens", granted))["token"]
    told = await Caller(world.http, token).tell("/nodes/join", {"hostname": "h"})
    return FakeNode(world, told["node_id"], Caller(world.http, told["key"]))


async def claim(node: FakeNode, *workers: Json, **more: Any) -> Any:
    body = {"hostname": "h", "workers": list(workers), **more}
    return await node.caller.post(f"/nodes/{node.id}/register", body)


async def script_worker(world: World) -> FakeWorker:
    told = declared("one", "run_script") | {"worker_class": "corral:RunScriptWorker"}
    node = await world.node(told)
    return await node.workers["one"].start()


async def test_h3_a_node_cannot_submit_and_so_not_name_a_secret(world: World) -> None:
    secret = {"name": "TOKEN", "value": "s3cr3t"}
    said(await world.admin.post("/secrets", secret))
    worker = await script_worker(world)
    node = worker.node.caller
    job = {"schema_name": "run_script", "payload": SCRIPT}
    body = {"worker_id": worker.id, "job": job}
    for word in (None, "", "guessed"):
        headers = {} if word is None else {CALL_PASS: word}
        answer = await node.post("/run_on_worker", body, headers=headers)
        fault(answer, 403, "forbidden")
    fault(await node.post("/tasks", {"task_type": "run_script"}), 403, "forbidden")
    assert worker.take() == []


async def test_h3_a_pass_is_for_one_call_of_one_worker_and_for_no_secret(
    world: World,
) -> None:
    said(await world.admin.post("/secrets", {"name": "TOKEN", "value": "s3cr3t"}))
    worker, other = await script_worker(world), await script_worker(world)
    passes = _passes(world.manager.gateway.requests)
    job = {"schema_name": "any", "payload": {"command": ["true"]}, "id": "once"}
    body = {"worker_id": worker.id, "job": job}
    foreign = {CALL_PASS: passes.issue(other.id)}
    ask = worker.node.caller.post
    fault(await ask("/run_on_worker", body, headers=foreign), 403, "forbidden")
    named = {"worker_id": worker.id, "job": {**job, "payload": SCRIPT}}
    headers = {CALL_PASS: passes.issue(worker.id)}
    fault(await ask("/run_on_worker", named, headers=headers), 422, "invalid_field")
    # Spent, though the job was refused.
    fault(await ask("/run_on_worker", body, headers=headers), 403, "forbidden")
    assert worker.take() == []


async def test_h3_a_caller_of_the_gateway_brings_no_pass_of_its_own(
    world: World,
) -> None:
    with serving() as target:
        await world.manager.gateway.apps.save(App("far", target.url, 5.0, 1))
        said(await world.submit.post("/far/x", {}, headers={CALL_PASS: "mine"}))
        assert CALL_PASS not in target.seen[0]["headers"]


async def test_h3_a_node_claims_no_more_than_its_token_grants(world: World) -> None:
    granted = {"labels": {"zone": "lab"}, "taints": ["spot"], "job_types": ["echo"]}
    node = await joined(world, **granted)
    trusted = {"zone": "trusted"}
    error = fault(await claim(node, labels=trusted), 409, "claim_refused")
    assert "zone=trusted" in error["message"]
    fault(await claim(node, labels={"disk": "ssd"}), 409, "claim_refused")
    error = fault(await claim(node, declared("a", "deploy")), 409, "claim_refused")
    assert "--type" in error["message"]
    own = {"url": "http://h:1"}
    said(await claim(node, declared("a", "echo"), labels={"zone": "lab"} | own))
    shown = said(await world.read.get(f"/nodes/{node.id}"))
    assert shown["labels"]["zone"] == "lab"
    assert shown["taints"] == ["spot"]


async def test_h3_a_node_takes_no_type_that_waits_for_somebody_elses_url(
    world: World,
) -> None:
    url = "http://worker.example:9000"
    wanted = {"job_type": "deploy", "worker_url": url}
    said(await world.operate.post("/register_job_to_worker", wanted))
    node = await joined(world, job_types=["echo"])
    stolen = declared("a", "echo") | {"url": url}
    fault(await claim(node, stolen), 409, "claim_refused")


async def test_h3_labels_of_a_token_open_secrets_and_a_nodes_own_do_not(
    world: World,
) -> None:
    only = {"node_labels": {"zone": "trusted"}}
    secret = {"name": "TOKEN", "value": "s3cr3t", **only}
    said(await world.admin.post("/secrets", secret))
    granted = {"labels": {"zone": "trusted"}}
    answers = []
    for node, labels in (
        (await joined(world), granted["labels"]),
        (await joined(world, **granted), {}),
    ):
        spec = declared("one", "run_script")
        told = said(await claim(node, spec, labels=labels))
        node.epoch = told["epoch"]
        worker = FakeWorker(node, told["desired"]["workers"][0]["worker_id"])
        await worker.start()
        await world.submit.submit(
            "run_script", parameters=SCRIPT, only_on=worker.id, retries=0
        )
        item = worker.take_one()
        body = {"task_id": item["task_id"], "attempt": item["attempt"]}
        answers.append(await node.caller.post(f"/workers/{worker.id}/secrets", body))
    fault(answers[0], 422, "invalid_field")
    assert said(answers[1]) == {"values": {"TOKEN": "s3cr3t"}}


async def test_h3_a_nodes_address_is_where_it_comes_from(world: World) -> None:
    node = await joined(world)
    said(await claim(node, address="10.9.8.7"))
    shown = said(await world.read.get(f"/nodes/{node.id}"))
    assert shown["address"] == "127.0.0.1"


def _passes(requests: AppRequests) -> Any:
    return requests._passes
