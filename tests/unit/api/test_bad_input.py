"""What callers get wrong: each mistake is named, and harms nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.api.world import World, fault, running, said

GOOD = {"task_type": "echo", "parameters": {"message": "hi"}}


@pytest.fixture(autouse=True)
async def echo(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})


@pytest.mark.spec("D21")
async def test_an_unknown_task_type_is_refused_and_the_known_are_named(
    world: World,
) -> None:
    answer = await world.submit.post("/tasks", {"task_type": "nope"})
    error = fault(answer, 422, "unknown_task_type")
    assert error["details"] == {"task_type": "nope"}
    assert "known: echo" in error["message"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"nope", b"\xff\xfe", b"\xef\xbb\xbf{}", b'"']
)
@pytest.mark.parametrize("path", ["/tasks", "/tasks/batch", "/tasks/collect"])
async def test_invalid_json_is_refused(world: World, path: str, body: bytes) -> None:
    answer = await world.submit.post(path, body)
    if body == b"" and path == "/tasks/collect":
        fault(answer, 422, "invalid_field")
    else:
        fault(answer, 400, "invalid_json")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("task_type", 7),
        ("task_type", ""),
        ("task_type", "no spaces"),
        ("task_id", "a/b"),
        ("task_id", 5),
        ("priority", "urgent"),
        ("priority", 1.5),
        ("priority", True),
        ("priority", 10**7),
        ("priority", 10**30),
        ("timeout", "long"),
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", 10**9),
        ("retries", -1),
        ("retries", 1001),
        ("retries", "two"),
        ("retries", True),
        ("run_after", "tomorrow"),
        ("run_after", 1e300),
        ("deadline", []),
        ("deadline", "9999-12-31T23:59:59-23:59"),
        ("run_after", "0001-01-01T00:00:00+23:59"),
        ("idempotency_key", "not a name"),
        ("idempotency_key", ""),
        ("model_name", "../etc"),
        ("overlap", "maybe"),
        ("labels", {"a": 1}),
        ("labels", {"a b": "x"}),
        ("labels", {"": "x"}),
        ("labels", {"a": "x" * 257}),
        ("labels", {"a": "line\nbreak"}),
        ("labels", {"a": "\x00"}),
        ("labels", {f"k{n}": "v" for n in range(65)}),
        ("labels", ["a"]),
        ("depends_on", "t1"),
        ("depends_on", ["no/slash"]),
        ("depends_on", ["never-seen"]),
        ("depends_on", [f"t{n}" for n in range(1001)]),
    ],
)
async def test_a_field_with_a_wrong_value_is_named(
    world: World, field: str, value: Any
) -> None:
    answer = await world.submit.post("/tasks", {**GOOD, field: value})
    error = fault(answer, 422, "invalid_field")
    assert error["details"]["field"].split("[")[0] == field


async def test_an_unknown_field_is_refused_by_name(world: World) -> None:
    answer = await world.submit.post("/tasks", {**GOOD, "prority": 3})
    assert "prority" in fault(answer, 422, "invalid_field")["message"]


async def test_parameters_and_payload_together_are_refused(world: World) -> None:
    answer = await world.submit.post("/tasks", {**GOOD, "payload": 1})
    assert fault(answer, 422, "invalid_field")["details"]["field"] == "payload"


@pytest.mark.parametrize("body", [b"[]", b"1", b'"x"', b"null", b"true"])
async def test_a_body_that_is_no_object_is_refused(world: World, body: bytes) -> None:
    fault(await world.submit.post("/tasks", body), 422, "invalid_field")
    fault(await world.submit.post("/tasks/batch", body), 422, "invalid_field")


@pytest.mark.spec("D21")
async def test_a_task_over_one_mebibyte_is_too_large_and_one_below_is_not(
    world: World,
) -> None:
    limit = 1 << 20
    answer = await world.submit.post("/tasks", {**GOOD, "parameters": "x" * limit})
    error = fault(answer, 413, "too_large")
    assert error["details"] == {"limit_bytes": limit}
    task = {**GOOD, "parameters": "x" * (limit - 2)}
    assert (await world.submit.post("/tasks", task)).status_code == 201


async def test_a_batch_over_16_mebibytes_is_too_large(world: World) -> None:
    task = {**GOOD, "parameters": "x" * 1_000_000}
    fifteen = {"tasks": [task] * 15}
    assert said(await world.submit.post("/tasks/batch", fifteen))["accepted"] == 15
    seventeen = {"tasks": [task] * 17}
    answer = await world.submit.post("/tasks/batch", seventeen)
    error = fault(answer, 413, "too_large")
    assert error["details"] == {"limit_bytes": 16 << 20}


async def test_a_body_of_unsaid_length_is_cut_off_at_the_limit() -> None:
    async def parts() -> Any:
        for _ in range(10):
            yield b" " * 100

    async with running(batch_body_limit=500) as world:
        answer = await world.submit.send("POST", "/tasks", content=parts())
        fault(answer, 413, "too_large")


async def test_one_too_large_task_of_a_batch_is_refused_alone(world: World) -> None:
    large = {**GOOD, "parameters": "x" * (1 << 20)}
    told = await world.submit.tell("/tasks/batch", {"tasks": [GOOD, large, GOOD]})
    assert (told["accepted"], told["refused"]) == (2, 1)
    assert told["task_ids"][1] is None
    (refusal,) = told["errors"]
    assert (refusal["index"], refusal["code"]) == (1, "too_large")


async def test_each_mistake_in_a_batch_is_told_with_its_place(world: World) -> None:
    rows = [
        GOOD,
        5,
        {"task_type": "nope"},
        GOOD,
        {**GOOD, "x": 1},
        {**GOOD, "retries": -1},
    ]
    told = await world.submit.tell("/tasks/batch", {"tasks": rows})
    assert [(e["index"], e["code"]) for e in told["errors"]] == [
        (1, "invalid_field"),
        (2, "unknown_task_type"),
        (4, "invalid_field"),
        (5, "invalid_field"),
    ]
    assert [t is None for t in told["task_ids"]] == [
        False,
        True,
        True,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("task_id", ["nope", "a%00b", "%ED%A0%80", "x" * 5000, "ä"])
async def test_an_unknown_id_is_not_found_whatever_it_looks_like(
    world: World, task_id: str
) -> None:
    for method, path in [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/cancel"),
        ("POST", "/requeue"),
        ("GET", "/logs"),
    ]:
        answer = await world.submit.send(method, f"/tasks/{task_id}{path}")
        fault(answer, 404, "task_not_found")


async def test_an_unknown_worker_or_node_is_not_found(world: World) -> None:
    fault(await world.read.get("/workers/nope"), 404, "worker_not_found")
    fault(await world.operate.delete("/workers/nope"), 404, "worker_not_found")
    fault(await world.read.get("/nodes/nope"), 404, "node_not_found")
    launch = {"worker_class": "a:B", "node_id": "nope"}
    fault(await world.operate.post("/workers", launch), 404, "node_not_found")


async def test_a_finished_task_cannot_be_cancelled(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    await worker.finish(worker.take_one())
    for answer in (
        await world.submit.delete(f"/tasks/{task_id}"),
        await world.submit.post(f"/tasks/{task_id}/cancel"),
    ):
        error = fault(answer, 409, "conflict")
        assert error["details"] == {"status": "completed"}


async def test_a_live_task_cannot_be_requeued(world: World) -> None:
    task_id = await world.submit.submit()
    answer = await world.submit.post(f"/tasks/{task_id}/requeue")
    assert fault(answer, 409, "conflict")["details"] == {"status": "queued"}


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "limit=x",
        "offset=-1",
        "offset=99999999999999999999999",
        "status=lost",
        "label=novalue",
        "cursor=!!",
        "cursor=%C2%B2",
        "dead=perhaps",
    ],
)
async def test_a_wrong_query_is_named(world: World, query: str) -> None:
    error = fault(await world.read.get(f"/tasks?{query}"), 422, "invalid_field")
    assert error["details"]["field"] == query.partition("=")[0]


@pytest.mark.parametrize("field", ["task_type", "worker_id", "label", "cursor"])
async def test_a_nul_in_a_query_is_no_trouble(world: World, field: str) -> None:
    answer = await world.read.get(f"/tasks?{field}=a:%00")
    assert answer.status_code in (200, 422), answer.text


@pytest.mark.parametrize(
    "after", ["x", "1", "1:", "-1:2", "%C2%B2:1", "1:" + "9" * 30, "a:%00"]
)
async def test_a_wrong_log_cursor_is_named(world: World, after: str) -> None:
    task_id = await world.submit.submit()
    answer = await world.read.get(f"/tasks/{task_id}/logs?after={after}")
    assert fault(answer, 422, "invalid_field")["details"]["field"] == "after"


@pytest.mark.parametrize("wait", ["-1", "61", "nan", "x"])
async def test_a_wait_out_of_range_is_named(world: World, wait: str) -> None:
    answer = await world.read.get(f"/tasks/any?wait={wait}")
    assert fault(answer, 422, "invalid_field")["details"]["field"] == "wait"


async def test_events_after_an_impossible_number_are_refused(world: World) -> None:
    for query in ("after=-1", "after=9" + "9" * 30, "limit=0", "task_id=%00"):
        fault(await world.read.get(f"/events?{query}"), 422, "invalid_field")


async def test_collect_takes_up_to_1000_ids_and_a_sane_wait(world: World) -> None:
    answer = await world.read.post("/tasks/collect", {"task_ids": ["x"] * 1001})
    assert fault(answer, 422, "invalid_field")["details"]["field"] == "task_ids"
    strange = {"task_ids": ["no\u0000pe", "ok"], "wait": -5}
    told = await world.read.tell("/tasks/collect", strange)
    assert told == {"tasks": [], "pending": [], "unknown": ["no\u0000pe", "ok"]}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/job-types", {"name": "no spaces"}, "name"),
        ("/job-types", {}, "name"),
        ("/job-types", {"name": "a", "input_schema": [1]}, "input_schema"),
        ("/job-types", {"name": "a", "output_schema": "x"}, "output_schema"),
        ("/join-tokens", {"uses": 0}, "uses"),
        ("/join-tokens", {"ttl_s": 0}, "ttl_s"),
        ("/join-tokens", {"ttl_s": 1e12}, "ttl_s"),
        ("/join-tokens", {"uses": "many"}, "uses"),
        ("/workers", {}, "worker_class"),
        ("/workers", {"worker_class": ""}, "worker_class"),
        ("/workers", {"worker_class": "a\u0000b"}, "worker_class"),
        ("/workers", {"worker_class": "rm -rf"}, "worker_class"),
        ("/workers", {"worker_class": "a:B", "count": 0}, "count"),
        ("/workers", {"worker_class": "a:B", "count": 10**6}, "count"),
        ("/workers", {"worker_class": "a:B", "concurrency": 0}, "concurrency"),
        ("/workers", {"worker_class": "a:B", "name": "a b"}, "name"),
        ("/workers", {"worker_class": "a:B", "job_types": ["a b"]}, "job_types"),
        ("/workers", {"worker_class": "a:B", "params": []}, "params"),
    ],
)
async def test_what_operators_get_wrong_is_named(
    world: World, path: str, body: dict[str, Any], field: str
) -> None:
    await world.node()
    answer = await world.admin.post(path, body)
    error = fault(answer, 422, "invalid_field")
    if body:
        assert error["details"]["field"] == field
    else:
        assert field in error["message"]


async def test_no_worker_can_be_launched_where_no_node_is_online(world: World) -> None:
    answer = await world.operate.post("/workers", {"worker_class": "a:B"})
    assert "corral join" in fault(answer, 409, "conflict")["message"]
