"""The MCP face: JSON-RPC over POST, tools that do what their calls do and no more."""

from __future__ import annotations

import json
from typing import Any

import httpx
import jsonschema
import pytest

from corral import __version__
from corral.api.mcp.routes import VERSIONS
from corral.api.mcp.tools import TOOLS
from tests.unit.api.routes_of import SCOPES, calls
from tests.unit.api.world import Caller, Json, World, fault, said

PATH = "/mcp-server/mcp"
DEEP = b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": ' + b"[" * 100_000


async def rpc(who: Caller, method: str, **params: Any) -> Json:
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    told = said(await who.post(PATH, body))
    assert (told["jsonrpc"], told["id"]) == ("2.0", 7)
    return told


async def use(who: Caller, name: str, **arguments: Any) -> Json:
    told = await rpc(who, "tools/call", name=name, arguments=arguments)
    result: Json = told["result"]
    (text,) = result["content"]
    assert text["type"] == "text"
    if "structuredContent" in result:
        assert json.loads(text["text"]) == result["structuredContent"]
    return result


async def good(who: Caller, name: str, **arguments: Any) -> Json:
    result = await use(who, name, **arguments)
    assert not result["isError"], result
    told: Json = result["structuredContent"]
    return told


async def test_a_handshake_agrees_on_a_version_and_names_the_server(
    world: World,
) -> None:
    for asked in (*VERSIONS, "1999-01-01", "2026-07-28"):
        told = (await rpc(world.read, "initialize", protocolVersion=asked))["result"]
        wanted = asked if asked in VERSIONS else VERSIONS[0]
        assert told["protocolVersion"] == wanted
        assert told["serverInfo"]["version"] == __version__
        assert told["capabilities"] == {"tools": {"listChanged": False}}
    assert (await rpc(world.read, "ping"))["result"] == {}


async def test_notifications_and_responses_are_taken_without_an_answer(
    world: World,
) -> None:
    for body in (
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "status"}},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
    ):
        answer = await world.read.post(PATH, body)
        assert (answer.status_code, answer.content) == (202, b"")


async def test_every_tool_has_a_schema_and_stands_for_a_call_of_its_scope(
    world: World,
) -> None:
    known = calls(world.app)
    listed = (await rpc(world.admin, "tools/list"))["result"]["tools"]
    assert [tool["name"] for tool in listed] == list(TOOLS)
    for shown in listed:
        tool = TOOLS[shown["name"]]
        assert (tool.method, tool.path) in known
        jsonschema.Draft202012Validator.check_schema(shown["inputSchema"])
        assert shown["inputSchema"]["type"] == "object"
        asked = SCOPES.get((tool.method, tool.path), "read")
        assert tool.scope == asked
        assert shown["annotations"]["readOnlyHint"] is (asked == "read")


async def test_a_reader_sees_and_uses_only_tools_that_look(world: World) -> None:
    worker = await world.worker()
    task_id = await world.submit.submit()
    listed = (await rpc(world.read, "tools/list"))["result"]["tools"]
    seen = {tool["name"] for tool in listed}
    assert seen < set(TOOLS)
    for name in set(TOOLS) - seen:
        needed = {"schema_name": "echo", "task_type": "echo", "task_id": task_id}
        asked = TOOLS[name].shown()["inputSchema"]["required"]
        result = await use(world.read, name, **{k: needed[k] for k in asked})
        assert result["isError"]
        assert result["structuredContent"]["error"]["code"] == "forbidden"
    assert worker.take_one()["task_id"] == task_id
    assert worker.take() == []


async def test_an_agent_submits_a_job_and_reads_its_output(world: World) -> None:
    worker = await world.worker()
    types = await good(world.read, "list_job_types")
    assert [t["name"] for t in types["job_types"]] == ["echo"]
    big = 12345678901234567890
    told = await good(
        world.submit, "submit_job", schema_name="echo", payload={"n": big}, id="mine"
    )
    assert (told["job_id"], told["status"]) == ("mine", "queued")
    item = worker.take_one()
    assert item["payload"] == {"n": big}
    await worker.begin(item)
    status = await good(world.read, "get_worker_status", worker_id=worker.id)
    assert (status["status"], status["job_id"]) == ("running", "mine")
    await worker.finish(item, {"done": True})
    told = await good(world.read, "get_job_status", job_id="mine")
    assert (told["status"], told["output"]) == ("completed", {"done": True})
    told = await good(world.read, "get_task", task_id="mine", wait=1)
    assert told["result"] == {"done": True}


async def test_the_tools_of_every_service_answer_as_their_calls_do(
    world: World,
) -> None:
    worker = await world.worker()
    for name in ("endpoints", "status"):
        assert await good(world.read, name) == await world.read.tell(f"/{name}")
    assert (await good(world.read, "heartbeat"))["heartbeat"]["status"] == "Available"
    told = await good(world.read, "list_workers", status="online", limit=10)
    assert told["workers"][0]["worker_id"] == worker.id
    assert (await good(world.read, "cluster_status"))["total_workers"] == 1
    assert (await good(world.read, "list_nodes"))["total"] == 1


async def test_an_agent_learns_why_a_task_waits_and_cancels_it(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "rare"})
    told = await good(
        world.submit, "submit_task", task_type="rare", parameters=[1], priority="high"
    )
    task_id = told["task_id"]
    told = await good(world.read, "get_task", task_id=task_id)
    assert told["waiting"]["reason"] == "no_worker"
    assert (told["priority"], told["parameters"]) == (10, [1])
    told = await good(world.read, "explain_task", task_id=task_id)
    assert told["task_id"] == task_id
    assert "rare" in told["headline"]
    told = await good(world.read, "list_tasks", status="queued", task_type="rare")
    assert [t["task_id"] for t in told["tasks"]] == [task_id]
    await good(world.submit, "cancel_task", task_id=task_id)
    assert await world.read.status(task_id) == "cancelled"
    again = await use(world.submit, "cancel_task", task_id=task_id)
    assert again["structuredContent"]["error"]["code"] == "conflict"
    assert (await good(world.read, "get_task_logs", task_id=task_id))["done"]
    told = await good(world.submit, "requeue_task", task_id=task_id)
    assert told["status"] == "queued"


@pytest.mark.parametrize(
    ("name", "arguments", "word"),
    [
        ("get_task", {}, "task_id"),
        ("get_task", {"task_id": "../workers"}, "task_id"),
        ("get_task", {"task_id": "t", "wait": 1e9}, "wait"),
        ("get_task", {"task_id": "t", "colour": 1}, "colour"),
        ("list_workers", {"status": "asleep"}, "status"),
        ("submit_job", {"schema_name": 5}, "schema_name"),
        ("status", [], "object"),
        ("status", "x", "object"),
    ],
)
async def test_an_agent_is_told_what_is_wrong_with_its_arguments(
    world: World, name: str, arguments: Any, word: str
) -> None:
    told = await rpc(world.admin, "tools/call", name=name, arguments=arguments)
    assert told["result"]["isError"]
    assert word in told["result"]["content"][0]["text"]


async def test_what_a_call_refuses_is_an_error_the_agent_can_read(
    world: World,
) -> None:
    result = await use(world.admin, "get_task", task_id="nobody")
    assert result["isError"]
    error = result["structuredContent"]["error"]
    assert error["code"] == "task_not_found"
    result = await use(world.admin, "submit_task", task_type="none")
    assert result["structuredContent"]["error"]["code"] == "unknown_task_type"


async def test_arguments_may_be_left_out(world: World) -> None:
    for params in ({"name": "status"}, {"name": "status", "arguments": None}):
        told = await rpc(world.read, "tools/call", **params)
        assert not told["result"]["isError"]


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("resources/list", {}, -32601),
        ("server/discover", {}, -32601),
        ("tools/call", {"name": "no_such"}, -32602),
        ("tools/call", {}, -32602),
        ("initialize", {}, -32602),
        ("initialize", {"protocolVersion": 5}, -32602),
    ],
)
async def test_what_is_not_there_is_a_json_rpc_error(
    world: World, method: str, params: Json, code: int
) -> None:
    told = await rpc(world.read, method, **params)
    assert told["error"]["code"] == code
    assert "result" not in told


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b"\xff", 400, "invalid_json"),
        (DEEP, 400, "invalid_json"),
        (b"[]", 422, "invalid_field"),
        (b"{}", 422, "invalid_field"),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', 422, "invalid_field"),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', 422, "invalid_field"),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', 422, "invalid_field"),
    ],
)
async def test_what_is_no_message_is_refused(
    world: World, body: bytes, status: int, code: str
) -> None:
    fault(await world.read.post(PATH, body), status, code)


async def send(world: World, **headers: str) -> httpx.Response:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    return await world.read.post(PATH, body, headers=headers)


async def test_a_version_that_is_not_spoken_is_refused(world: World) -> None:
    for version in VERSIONS:
        said(await send(world, **{"MCP-Protocol-Version": version}))
    answer = await send(world, **{"MCP-Protocol-Version": "2026-07-28"})
    error = fault(answer, 400, "bad_request")
    assert error["details"]["supported"] == list(VERSIONS)


async def test_pages_of_other_sites_are_kept_out(world: World) -> None:
    said(await send(world, Origin="http://corral"))
    for origin in ("http://evil.example", "null", "http://corral.evil.example"):
        fault(await send(world, Origin=origin), 403, "forbidden")


async def test_there_are_no_streams_and_no_sessions(world: World) -> None:
    for method in ("GET", "DELETE"):
        answer = await world.read.send(method, PATH)
        fault(answer, 405, "method_not_allowed")
        assert answer.headers["allow"] == "POST"
    assert "mcp-session-id" not in (await send(world)).headers
