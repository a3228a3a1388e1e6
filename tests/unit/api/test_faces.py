"""One error shape everywhere, the request id, and the description of the API."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from corral.api.errors import STATUS, status_of
from corral.errors import (
    BadRequest,
    Conflict,
    CorralError,
    NotFound,
    Unavailable,
    Unreachable,
)
from tests.unit.api.routes_of import walk
from tests.unit.api.world import World, fault, running

JSON, BINARY = "application/json", "application/octet-stream"

OPEN = {"get /health", "get /ui/session"}


def _all_of(kind: type[CorralError]) -> set[type[CorralError]]:
    return {kind}.union(*(_all_of(sub) for sub in kind.__subclasses__()))


async def test_an_unknown_address_has_the_one_shape(world: World) -> None:
    answer = await world.read.get("/nothing/here")
    assert "/openapi.json" in fault(answer, 404, "not_found")["message"]


async def test_a_wrong_method_has_the_one_shape_and_names_the_right_one(
    world: World,
) -> None:
    answer = await world.read.send("PUT", "/tasks")
    fault(answer, 405, "method_not_allowed")
    assert answer.headers["allow"]


async def test_a_wrong_query_has_the_one_shape(world: World) -> None:
    answer = await world.read.get("/tasks?limit=many")
    error = fault(answer, 422, "invalid_field")
    assert error["details"] == {"field": "limit"}


async def test_a_mistake_of_ours_has_the_one_shape_and_tells_no_secret(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    @world.app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("the secret is swordfish")

    answer = await world.read.get("/broken")
    error = fault(answer, 500, "internal_error")
    assert "swordfish" not in answer.text
    assert "the secret is swordfish" in caplog.text
    assert error["request_id"] in caplog.text
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_every_exception_of_ours_has_a_status() -> None:
    for kind in _all_of(CorralError):
        assert any(issubclass(kind, known) for known, _ in STATUS)


@pytest.mark.parametrize("path", ["/health", "/tasks", "/nothing"])
async def test_a_request_id_is_echoed(world: World, path: str) -> None:
    headers = {"X-Request-ID": "abc.DEF-1_2"}
    answer = await world.read.send("GET", path, headers=headers)
    assert answer.headers.get_list("x-request-id") == ["abc.DEF-1_2"]
    if answer.is_error:
        assert answer.json()["error"]["request_id"] == "abc.DEF-1_2"


@pytest.mark.parametrize("wrong", ["a b", "x" * 65, "ä", "<script>", ""])
async def test_a_request_id_of_another_shape_is_replaced(
    world: World, wrong: str
) -> None:
    headers = {"X-Request-ID": wrong.encode()}
    answer = await world.read.send("GET", "/health", headers=headers)
    assert re.fullmatch(r"[0-9a-f]{32}", answer.headers["x-request-id"])


async def test_every_answer_tells_browsers_to_be_careful(world: World) -> None:
    for path in ("/health", "/tasks", "/nothing"):
        headers = (await world.read.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "default-src 'self'" in headers["content-security-policy"]


@pytest.mark.spec("C2")
async def test_health_answers_without_a_key(world: World) -> None:
    answer = await world.nobody.get("/health")
    assert answer.status_code == 200
    assert answer.json()["status"] == "healthy"
    assert set(answer.json()) == {"status", "timestamp", "version"}


async def test_the_description_is_served_to_those_with_a_key(world: World) -> None:
    fault(await world.nobody.get("/openapi.json"), 401, "unauthenticated")
    document = await world.read.ask("/openapi.json")
    assert document["openapi"].startswith("3.")
    assert document["info"]["title"] == "Corral"


async def test_every_public_call_is_described_with_example_and_error_codes(
    world: World,
) -> None:
    document = await world.read.ask("/openapi.json")
    assert {"/tasks", "/tasks/{task_id}", "/workers", "/nodes"} <= set(
        document["paths"]
    )
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            name = f"{method} {path}"
            assert call.get("summary"), name
            assert call.get("tags"), name
            if path.startswith("/v1/"):
                _check_faults(name, call["responses"])
                continue
            _check_answers(name, call["responses"], is_open=name in OPEN)
            if (body := call.get("requestBody")) is not None:
                content = body["content"].get("application/json", {})
                assert content.get("example") or BINARY in body["content"], name
                assert {"413", "422"} <= set(call["responses"]), name
            if "{" in path:
                assert "404" in call["responses"], name


def _check_faults(name: str, answers: dict[str, dict[str, Any]]) -> None:
    """As clients of that API expect them."""
    assert {"200", "401", "403", "429", "500", "503"} <= set(answers), name
    for status, answer in answers.items():
        if int(status) >= 400:
            told = answer["content"]["application/json"]
            assert told["schema"] == {"$ref": "#/components/schemas/FaultOut"}, name
            assert {"message", "type", "code"} <= set(told["example"]["error"])


def _check_answers(name: str, answers: dict[str, object], is_open: bool) -> None:
    statuses = set(answers)
    assert statuses & {"200", "201"}, name
    assert "500" in statuses, name
    if not is_open:
        assert {"401", "403", "429", "503"} <= statuses, name
    for status, answer in answers.items():
        assert isinstance(answer, dict)
        if int(status) >= 400:
            schema = answer["content"]["application/json"]["schema"]
            assert schema == {"$ref": "#/components/schemas/ProblemOut"}, name
            example = answer["content"]["application/json"]["example"]
            assert set(example["error"]) == {
                "code",
                "message",
                "details",
                "request_id",
                "timestamp",
            }


async def test_every_reference_of_the_description_leads_somewhere(
    world: World,
) -> None:
    answer = await world.read.get("/openapi.json")
    known = set(answer.json()["components"]["schemas"])
    used = set(re.findall(r'"#/components/schemas/([^"]+)"', answer.text))
    assert used
    assert used <= known
    assert not {"HTTPValidationError", "ValidationError"} & known


async def test_examples_of_the_description_are_accepted_as_they_stand(
    world: World,
) -> None:
    await world.worker("echo")
    document = await world.read.ask("/openapi.json")
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            if JSON in call.get("requestBody", {}).get("content", {}):
                content = call["requestBody"]["content"][JSON]
                answer = await world.admin.send(
                    method.upper(), path, json=content["example"]
                )
                # The job API's examples name things that are not there, and so does
                # a path that has a name in it, or a body that needs workers' ids.
                is_known = answer.is_success or answer.status_code == 404
                is_loose = "job API" in call["tags"] or "{" in path
                is_loose |= path == "/models/assign" or path.startswith("/v1/")
                is_fine = is_known if is_loose else answer.is_success
                assert is_fine, f"{method} {path}: {answer.text}"


async def test_a_closed_description_hides_no_call_but_those_of_nodes_and_apps(
    world: World,
) -> None:
    document = await world.read.ask("/openapi.json")
    hidden = {
        route.path
        for route in walk(world.app.routes)
        if route.path.replace(":path", "") not in document["paths"]
    }
    assert hidden == {
        "/",
        "/ui",
        "/ui/a/{version}/{name:path}",
        "/ui/{rest:path}",
        "/{app}/{path}",
        "/engine",
        "/nodes/join",
        "/nodes/join/proof",
        "/nodes/{node_id}/beat",
        "/nodes/{node_id}/desired",
        "/workers/{worker_id}/execs/{exec_id}",
        "/workers/{worker_id}/secrets",
        "/workers/{worker_id}/models/{name}",
        "/workers/{worker_id}/models/{name}/files/{file:path}",
        "/nodes/{node_id}/register",
        "/workers/{worker_id}/register",
        "/workers/{worker_id}/checkpoints/{task_id}",
        "/workers/{worker_id}/reports",
        "/workers/{worker_id}/trees",
        "/ws",
    }


async def test_a_mistake_of_ours_is_told_without_its_words() -> None:
    async with running() as world:

        @world.app.get("/broken")
        async def broken() -> None:
            raise RuntimeError("look here")

        answer = await world.read.get("/broken")
        fault(answer, 500, "internal_error")
        assert "look here" not in answer.text


def test_the_guide_tells_every_status_with_its_codes() -> None:
    text = (Path(__file__).parents[3] / "docs/api.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (\d{3}) \| (.+?) \|", text, re.MULTILINE))
    told = {(int(s), code) for s in rows for code in re.findall(r"`(\w+)`", rows[s])}
    raised = {
        (status_of(kind("x")), kind.code)
        for kind in _all_of(CorralError)
        if kind.__module__ == "corral.errors" and kind.code in _ANSWERED
    }
    ours = {(500, "internal_error"), (405, "method_not_allowed")}
    assert told == raised | ours


_ANSWERED = {
    kind.code
    for base in (BadRequest, NotFound, Conflict, Unavailable)
    for kind in (base, *base.__subclasses__())
    if kind is not Unreachable
} | {"unauthenticated", "forbidden", "rate_limited"}


async def test_the_guide_names_only_calls_that_exist(world: World) -> None:
    text = (Path(__file__).parents[3] / "docs/api.md").read_text(encoding="utf-8")
    known = {route.path for route in walk(world.app.routes)}
    for path in re.findall(r"\$CORRAL(/[^\s\"?]*)", text):
        assert re.sub(r"0198…", "{task_id}", path) in known


async def test_answers_are_described_as_whole_whatever_readers_may_miss(
    world: World,
) -> None:
    """Defaults of an answer are for clients of older managers."""
    schemas = (await world.read.ask("/openapi.json"))["components"]["schemas"]
    for name in ("NodeOut", "HoldInfo", "ClusterStatus", "TaskOut"):
        fields = schemas[name]["properties"]
        assert set(schemas[name]["required"]) == set(fields)
        assert not [field for field in fields.values() if "default" in field]
    # None stands there only where an older manager said nothing.
    assert schemas["Start"]["properties"]["at"]["type"] == "string"
    # A traceback is sent where there is one.
    assert set(schemas["ErrorOut"]["required"]) == {"kind", "message"}
