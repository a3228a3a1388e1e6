"""Apps: registering, forwarding, and job types whose tasks an app runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from corral.manager.outbound.address import GatewayConfig
from tests.twins.store import MemoryStore
from tests.unit.api.target_app import Target, serving
from tests.unit.api.world import CONFIG, World, fault, quiet, running, said


@pytest.fixture(scope="module")
def service() -> Iterator[Target]:
    with serving() as made:
        yield made


@pytest.fixture
def target(service: Target) -> Iterator[Target]:
    yield service
    service.forget()


async def register(world: World, url: str, **more: Any) -> None:
    await world.admin.tell("/apps", {"name": "echo", "url": url, **more})


async def seen(event: Any) -> None:
    assert await asyncio.to_thread(event.wait, 20)


async def job_type(world: World, path: str, **more: Any) -> None:
    body = {"name": "call", "target": f"echo/{path}", **more}
    await world.operate.tell("/job-types", body)


async def ended(world: World, task_id: str) -> dict[str, Any]:
    return await world.read.ask(f"/tasks/{task_id}", wait=20)


# apps ------------------------------------------------------------------------
async def test_an_app_is_registered_listed_and_forgotten(
    world: World, target: Target
) -> None:
    await register(world, target.url, timeout=5)
    (app,) = (await world.read.ask("/apps"))["apps"]
    assert (app["name"], app["url"], app["timeout"]) == ("echo", target.url, 5)
    said(await world.admin.delete("/apps/echo"))
    assert (await world.read.ask("/apps"))["apps"] == []
    fault(await world.submit.get("/echo/x"), 404, "not_found")
    fault(await world.admin.delete("/apps/echo"), 404, "not_found")


@pytest.mark.parametrize(
    "name", ["tasks", "apps", "health", "engine", "openapi.json", "ui", "v1", "a/b", ""]
)
async def test_an_app_cannot_have_the_name_of_a_route(world: World, name: str) -> None:
    body = {"name": name, "url": "http://127.0.0.1:9000"}
    error = fault(await world.admin.post("/apps", body), 422, "invalid_field")
    assert error["details"]["field"] == "name"


@pytest.mark.parametrize(
    ("field", "value"),
    [("timeout", 0), ("timeout", 1e9), ("concurrency", 0), ("url", "http://[::]")],
)
async def test_an_app_with_a_wrong_field_is_refused(
    world: World, field: str, value: Any
) -> None:
    body = {"name": "echo", "url": "http://127.0.0.1:9000", field: value}
    error = fault(await world.admin.post("/apps", body), 422, "invalid_field")
    assert error["details"]["field"] == field


async def test_apps_are_there_again_after_a_restart(target: Target) -> None:
    store = MemoryStore()
    async with running(inner=store) as world:
        await register(world, target.url)
    async with running(inner=store) as world:
        assert (await world.submit.get("/echo/x")).status_code == 200


# forwarding ------------------------------------------------------------------
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_any_method_is_forwarded_with_path_query_and_body(
    world: World, target: Target, method: str
) -> None:
    await register(world, f"{target.url}/base/")
    path = "/echo/a%20b/c%2Fd/?q=1&q=%C3%A4"
    got = said(await world.submit.send(method, path, content=b"\x00\xff"))
    assert got["method"] == method
    assert got["path"] == "/base/a%20b/c%2Fd/"
    assert got["query"] == "q=1&q=%C3%A4"
    assert got["body"] == "\x00\xff"
    assert got["headers"]["host"] == f"127.0.0.1:{target.port}"


async def test_an_app_is_called_by_its_name_at_the_address_that_was_checked(
    world: World, target: Target
) -> None:
    await register(world, f"http://localhost:{target.port}")
    got = said(await world.submit.get("/echo"))
    assert got["path"] == "/"
    assert got["headers"]["host"] == f"localhost:{target.port}"


async def test_credentials_and_headers_for_one_connection_do_not_travel(
    world: World, target: Target
) -> None:
    await register(world, target.url)
    headers = {
        "Cookie": "session=1",
        "Proxy-Authorization": "Basic eA==",
        "Connection": "x-mine, close",
        "X-Mine": "1",
        "TE": "trailers",
        "Upgrade": "h2c",
        "X-Kept": "yes",
    }
    answer = await world.submit.send("GET", "/echo/x", headers=headers)
    sent = said(answer)["headers"]
    assert sent["x-kept"] == "yes"
    assert sent["x-request-id"] == answer.headers["x-request-id"]
    gone = {"authorization", "cookie", "proxy-authorization", "x-mine", "te", "upgrade"}
    assert not gone & set(sent)
    assert answer.headers["x-answer"] == "yes"
    assert not {"set-cookie", "x-hop", "connection"} & set(answer.headers)
    assert "sandbox" in answer.headers["content-security-policy"]


async def test_forwarding_asks_for_a_key_that_may_submit(
    world: World, target: Target
) -> None:
    await register(world, target.url)
    fault(await world.nobody.get("/echo/x"), 401, "unauthenticated")
    fault(await world.read.get("/echo/x"), 403, "forbidden")
    assert target.seen == []


@pytest.mark.parametrize(
    "path", ["/echo/../tasks", "/echo/a/%2e%2e/b", "/echo/..%2fb", "/echo/..%5cb"]
)
async def test_no_path_leads_out_of_the_app(
    world: World, target: Target, path: str
) -> None:
    await register(world, f"{target.url}/base")
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"authorization", world.submit.headers["Authorization"].encode())],
        "client": ("127.0.0.1", 1),
        "server": ("corral", 80),
        "scheme": "http",
    }
    words: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        words.append(message)

    await world.app(scope, receive, send)
    assert words[0]["status"] == 400
    assert target.seen == []


async def test_a_redirect_is_passed_back_and_not_followed(
    world: World, target: Target
) -> None:
    await register(world, target.url)
    answer = await world.submit.get("/echo/away")
    assert answer.status_code == 307
    assert answer.headers["location"] == "http://169.254.169.254"


async def test_an_app_that_is_silent_too_long_is_a_504(
    world: World, target: Target
) -> None:
    await register(world, target.url, timeout=0.2)
    error = fault(await world.submit.get("/echo/hold"), 504, "gateway_timeout")
    assert "0.2 s" in error["message"]


async def test_an_app_that_is_not_there_is_a_502(world: World, target: Target) -> None:
    with serving() as other:
        await register(world, other.url)
    fault(await world.submit.get("/echo/x"), 502, "bad_gateway")


async def test_a_target_that_became_forbidden_is_not_reached(target: Target) -> None:
    store = MemoryStore()
    async with running(inner=store) as world:
        await register(world, target.url)
    gateway = GatewayConfig(is_exposed=True)
    async with running(replace(CONFIG, gateway=gateway), store) as world:
        answer = await world.submit.get("/echo/x")
        assert "GATEWAY_ALLOW" in fault(answer, 502, "bad_gateway")["message"]
        assert target.seen == []


async def test_a_route_stands_before_an_app_of_its_name(
    world: World, target: Target
) -> None:
    await register(world, target.url)

    @world.app.get("/echo/{rest}")
    async def route(rest: str) -> str:
        return "ours"

    assert (await world.nobody.get("/echo/x")).json() == "ours"


# tasks an app runs -----------------------------------------------------------
@pytest.mark.spec("E1")
async def test_a_task_goes_to_the_endpoint_or_to_workers_as_its_type_says(
    world: World, target: Target
) -> None:
    worker = await world.worker("work")
    await register(world, target.url)
    await job_type(world, "run")
    called = await world.submit.submit("call", parameters={"n": 21})
    queued = await world.submit.submit("work", parameters={"n": 1})
    task = await ended(world, called)
    assert (task["status"], task["result"]) == ("completed", {"doubled": 42})
    assert task["worker_id"] == "app:echo"
    assert task["attempt"] == 1
    headers = target.seen[0]["headers"]
    assert headers["x-corral-task"] == called
    assert "authorization" not in headers
    assert worker.take_one()["task_id"] == queued


@pytest.mark.parametrize(
    ("path", "kind", "words"),
    [
        ("broken", "bad_status", "answered 500: no such model"),
        ("away", "bad_status", "answered 307"),
        ("text", "bad_result", "did not answer JSON"),
    ],
)
async def test_an_app_that_fails_fails_the_task(
    world: World, target: Target, path: str, kind: str, words: str
) -> None:
    await register(world, target.url)
    await job_type(world, path)
    task = await ended(world, await world.submit.submit("call"))
    assert task["status"] == "failed"
    assert task["error"]["kind"] == kind
    assert words in task["error"]["message"]


async def test_a_call_is_tried_again_as_often_as_the_task_says(
    world: World, target: Target
) -> None:
    await register(world, target.url)
    await job_type(world, "broken")
    task_id = await world.submit.submit("call", retries=1)
    while not (await world.read.task(task_id))["tries"]:
        await quiet()
    await world.step(60)
    task = await ended(world, task_id)
    assert (task["status"], task["tries"], task["attempt"]) == ("failed", 2, 2)


async def test_a_result_of_an_app_is_held_to_the_schema(
    world: World, target: Target
) -> None:
    await register(world, target.url)
    schema = {"required": ["tripled"]}
    await job_type(world, "run", output_schema=schema)
    task = await ended(world, await world.submit.submit("call", parameters={"n": 1}))
    assert (task["status"], task["error"]["kind"]) == ("failed", "bad_result")
    assert "result.tripled" in task["error"]["message"]


async def test_a_call_that_takes_too_long_times_out(
    world: World, target: Target
) -> None:
    await register(world, target.url)
    await job_type(world, "hold")
    task = await ended(world, await world.submit.submit("call", timeout=0.1))
    assert (task["status"], task["error"]["kind"]) == ("timed_out", "timeout")
    await register(world, target.url, timeout=0.1)
    task = await ended(world, await world.submit.submit("call"))
    assert task["status"] == "timed_out"
    assert "within 0.1 s" in task["error"]["message"]


async def test_a_long_call_is_shown_as_running_and_can_be_cancelled(
    world: World, target: Target
) -> None:
    await register(world, target.url)
    await job_type(world, "hold")
    task_id = await world.submit.submit("call")
    await seen(target.arrived)
    while await world.read.status(task_id) != "running":
        await quiet()
    said(await world.submit.delete(f"/tasks/{task_id}"))
    assert await world.read.status(task_id) == "cancelled"
    target.go.set()
    again = await ended(world, await world.submit.submit("call"))
    assert again["status"] == "completed"
    assert await world.read.status(task_id) == "cancelled"


async def test_a_call_that_died_with_its_manager_is_made_again(target: Target) -> None:
    store = MemoryStore()
    async with running(inner=store) as world:
        await register(world, target.url)
        await job_type(world, "hold")
        task_id = await world.submit.submit("call")
        await seen(target.arrived)
    target.go.set()
    async with running(inner=store) as world:
        task = await ended(world, task_id)
        assert (task["status"], task["attempt"]) == ("completed", 2)
        assert (task["tries"], task["losses"]) == (0, 0)
        assert [a["outcome"] for a in task["attempts"]] == ["returned"]


async def test_an_outcome_waits_for_a_store_that_is_away(
    world: World, target: Target
) -> None:
    await register(world, target.url)
    await job_type(world, "hold")
    task_id = await world.submit.submit("call")
    await seen(target.arrived)
    world.store.is_down = True
    target.go.set()
    while not world.manager.ctx.cluster.is_dirty:  # It tried to write, in vain.
        await quiet()
    world.store.is_down = False
    task = await ended(world, task_id)
    assert (task["status"], task["result"]) == ("completed", {"held": True})
    assert task["attempt"] == 1


async def test_no_more_calls_than_the_app_takes_at_once(
    world: World, target: Target
) -> None:
    await register(world, target.url, concurrency=2)
    await job_type(world, "hold")
    ids = [await world.submit.submit("call") for _ in range(5)]
    await seen(target.arrived)
    told = await world.read.ask("/job-types/call")
    assert told["waiting"] == 3
    assert (await world.read.task(ids[4]))["waiting"]["reason"] == "workers_busy"
    target.go.set()
    for task_id in ids:
        assert (await ended(world, task_id))["status"] == "completed"


async def test_an_app_a_job_type_targets_stays(world: World, target: Target) -> None:
    await register(world, target.url)
    await job_type(world, "run")
    fault(await world.admin.delete("/apps/echo"), 409, "conflict")
    await world.operate.tell("/job-types", {"name": "call"})
    said(await world.admin.delete("/apps/echo"))


@pytest.mark.parametrize("path", ["nobody/run", "echo/../x", "@x", "", "echo/a b"])
async def test_a_target_that_is_no_app_and_path_is_refused(
    world: World, target: Target, path: str
) -> None:
    await register(world, target.url)
    body = {"name": "call", "target": path}
    error = fault(await world.operate.post("/job-types", body), 422, "invalid_field")
    assert error["details"]["field"] == "target"


async def test_apps_are_not_shown_as_workers(world: World, target: Target) -> None:
    await register(world, target.url)
    await job_type(world, "run")
    assert (await world.read.ask("/workers"))["workers"] == []
    fault(await world.operate.delete("/workers/app:echo"), 404, "worker_not_found")
    assert (await world.read.ask("/cluster/status"))["total_workers"] == 0
