"""A port of the job API by itself: what it answers before any manager is asked."""

from __future__ import annotations

import httpx
import pytest

from corral.client.job_api.connection import Connection, Verb
from corral.errors import AlreadyRunning, InvalidField
from corral.relay.app import (
    BODY_LIMIT,
    PortAnswer,
    PortRequest,
    Relay,
    RelayedManager,
    told,
)
from corral.relay.port import MANAGER, has_port, listen
from tests.acceptance.cluster import free_port


async def echo(call: PortRequest) -> PortAnswer:
    return told({"body": call.body, "key": call.key})


def caller() -> httpx.AsyncClient:
    """A client of a port whose manager is away."""
    manager = RelayedManager(f"http://127.0.0.1:{free_port()}")
    relay = Relay(manager, "Thing", lambda: "it", {"echo": echo})
    transport = httpx.ASGITransport(relay)
    return httpx.AsyncClient(transport=transport, base_url="http://port")


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_a_manager_that_is_away_is_said_so_in_the_one_error_shape() -> None:
    async with caller() as http:
        for name in ("status", "endpoints", "heartbeat", "mcp-server/mcp"):
            answer = await http.post(f"/{name}")
            assert code(answer) == (503, "unreachable")
            assert answer.headers[MANAGER].startswith("http://127.0.0.1:")


async def test_what_is_no_call_of_ours_is_refused_before_anyone_is_asked() -> None:
    async with caller() as http:
        assert code(await http.post("/echo", content=b"{")) == (400, "invalid_json")
        assert code(await http.post("/echo", json=[1])) == (400, "invalid_json")
        large = b" " * (BODY_LIMIT + 1)
        assert code(await http.post("/echo", content=large)) == (413, "too_large")
        assert code(await http.get("/echo")) == (405, "method_not_allowed")
        for name in ("nothing", "health", ""):
            assert code(await http.post(f"/{name}")) == (404, "not_found")
        unknown = await http.get("/nothing")
        assert code(unknown) == (404, "not_found")
        assert "no endpoint 'nothing' here" in unknown.text
        assert unknown.headers[MANAGER].startswith("http://127.0.0.1:")
        assert (await http.get("/health")).json() == {"status": "healthy"}


async def test_an_endpoint_gets_the_body_and_the_key_as_they_came() -> None:
    async with caller() as http:
        headers = {"Authorization": "Bearer x"}
        answer = await http.post("/echo", json={"a": 1}, headers=headers)
        assert answer.json() == {"body": {"a": 1}, "key": "Bearer x"}
        bare = await http.post("/echo/")
        assert bare.json() == {"body": {}, "key": None}


def test_only_plain_http_with_a_port_opens_one() -> None:
    assert has_port("http://localhost:8003")
    for name in (None, "", "localhost:1", "https://h:1", "http://h", "http://h:99999"):
        assert not has_port(name)


def test_a_taken_port_is_refused_with_its_url() -> None:
    with listen("http://localhost:" + str(free_port())) as taken:
        address, port = taken.getsockname()
        assert address == "127.0.0.1"
        with pytest.raises(AlreadyRunning, match=str(port)):
            listen(f"http://localhost:{port}")


def test_fields_that_lack_are_found_before_anything_is_sent() -> None:
    class Thing(Connection):
        verbs = {"do": Verb(None, ("what", "how"), 1)}

    thing = Thing("http://nowhere", None)
    with pytest.raises(InvalidField, match="what"):
        thing.do(how="well")
    with pytest.raises(TypeError, match="twice"):
        thing.do("this", what="that")
    with pytest.raises(TypeError, match="by place"):
        thing.do(1, 2, 3)
    with pytest.raises(TypeError, match="not both"):
        thing.do({"what": 1}, how="well")
    with pytest.raises(AttributeError):
        thing.undo()
    assert {"do", "ado"} <= set(dir(thing))
