"""Who may do what: keys on every route, scopes, nodes, join tokens, limits, audit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from corral.core.access.key import Scope
from corral.manager.access.rate_limit import RateLimits
from corral.manager.config import ManagerConfig
from corral.store.base import AuditRow
from tests.unit.api.routes_of import (
    FOR_NODES,
    LOOKS,
    OPEN,
    SCOPES,
    calls,
    fill,
    sockets,
)
from tests.unit.api.world import (
    CONFIG,
    SECRET,
    Caller,
    World,
    declared,
    fault,
    running,
    said,
)

FREE = replace(CONFIG, limits=RateLimits(failures_per_min=1000))


async def audit(world: World) -> list[AuditRow]:
    """Newest first."""
    await world.manager.access.audit.flush()
    return list(await world.store.inner.access.audit(1000))


def check(method: str, answer: httpx.Response, status: int, code: str) -> None:
    if method == "HEAD":
        assert (answer.status_code, answer.content) == (status, b"")
    else:
        fault(answer, status, code)


async def try_socket(world: World, path: str, key: str | None) -> dict[str, Any]:
    """Knock at a WebSocket; the first word of the application."""
    headers = [(b"authorization", f"Bearer {key}".encode())] if key else []
    scope = {
        "type": "websocket",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("corral", 80),
        "subprotocols": [],
        "scheme": "ws",
    }
    words: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        words.append(message)

    await world.app(scope, receive, send)
    return words[0]


@pytest.mark.spec("C63", "D21")
async def test_every_route_but_health_asks_for_a_key() -> None:
    async with running(FREE) as world:
        found = calls(world.app)
        assert len(found) > 25
        for method, path in found:
            answer = await world.nobody.send(method, fill(path))
            if (method, path) in OPEN:
                assert answer.status_code == 200
            else:
                check(method, answer, 401, "unauthenticated")
                assert answer.headers["www-authenticate"] == "Bearer"


async def test_every_websocket_asks_for_a_key_that_may() -> None:
    async with running(FREE) as world:
        assert set(sockets(world.app)) == {"/engine", "/ws"}
        keys = [None, "corral_wrong_key"]
        for scope in (Scope.ADMIN, Scope.JOIN):
            keys.append((await world.manager.access.keys.create(scope, "x"))[1])
        for key in keys:
            word = await try_socket(world, "/engine", key)
            assert (word["type"], word["code"]) == ("websocket.close", 4401)
        for key, code in zip((None, keys[1], keys[3]), (4401, 4401, 4403), strict=True):
            word = await try_socket(world, "/ws", key)
            assert (word["type"], word["code"]) == ("websocket.close", code)
        node = await world.node()
        key = node.caller.headers["Authorization"].removeprefix("Bearer ")
        word = await try_socket(world, "/engine", key)
        assert word["code"] == 1013, "known, but this engine has no port to reach"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic abc",
        "Bearer corral_a_b",
        "Bearer ä",
        "corral_a_b",
    ],
)
async def test_a_key_that_is_none_is_refused(world: World, header: str) -> None:
    headers = {"Authorization": header.encode("latin-1")}
    answer = await world.nobody.send("GET", "/tasks", headers=headers)
    fault(answer, 401, "unauthenticated")


async def test_a_known_id_with_another_secret_is_refused(world: World) -> None:
    right = world.admin.headers["Authorization"]
    answer = await Caller(world.http, right.removeprefix("Bearer ") + "x").get("/tasks")
    fault(answer, 401, "unauthenticated")


LADDER = [Scope.READ, Scope.SUBMIT, Scope.OPERATE, Scope.ADMIN]


@pytest.mark.parametrize("held", Scope)
async def test_a_key_of_each_scope_passes_where_it_may_and_nowhere_else(
    held: Scope,
) -> None:
    async with running(FREE) as world:
        _, key = await world.manager.access.keys.create(held, "x", node_id="n")
        who = Caller(world.http, key)
        for method, path in calls(world.app):
            if (method, path) in OPEN:
                continue
            asked = SCOPES.get((method, path), Scope.READ)
            may = held is asked or (
                held in LADDER
                and asked in LADDER
                and LADDER.index(asked) <= LADDER.index(held)
            )
            may = may or (held is Scope.NODE and (method, path) in FOR_NODES)
            answer = await who.send(method, fill(path), content=b"x")
            is_refused = answer.status_code == 403
            assert is_refused is not may, f"{held}: {method} {path}: {answer.text}"
            if is_refused:
                check(method, answer, 403, "forbidden")


async def test_a_reader_changes_nothing(world: World) -> None:
    reading = ("GET", "HEAD")
    changing = [
        (method, path)
        for method, path in calls(world.app)
        if method not in reading and path not in LOOKS
    ]
    assert len(changing) > 10
    for method, path in changing:
        answer = await world.read.send(method, fill(path))
        fault(answer, 403, "forbidden")


async def test_a_key_expires_and_can_be_revoked(world: World) -> None:
    key, text = await world.manager.access.keys.create(Scope.READ, "x", ttl_s=60)
    who = Caller(world.http, text)
    assert (await who.get("/tasks")).status_code == 200
    world.clock.step(60)
    fault(await who.get("/tasks"), 401, "unauthenticated")
    key, text = await world.manager.access.keys.create(Scope.READ, "y")
    await world.manager.access.keys.revoke(key.id)
    fault(await Caller(world.http, text).get("/tasks"), 401, "unauthenticated")


async def test_the_bootstrap_key_of_any_shape_opens_as_admin(world: World) -> None:
    for text in ("a plain old API_KEY", "corral_abc_def"):
        await world.manager.access.keys.ensure(text, Scope.ADMIN, "bootstrap")
        await world.manager.access.keys.ensure(text, Scope.ADMIN, "bootstrap")
        answer = await Caller(world.http, text).post("/join-tokens")
        assert answer.status_code == 201


async def test_without_keys_everyone_is_admin_and_nodes_are_still_themselves() -> None:
    async with running(replace(CONFIG, is_open=True)) as world:
        await world.nobody.tell("/job-types", {"name": "echo"})
        token = (await world.nobody.tell("/join-tokens"))["token"]
        joined = await Caller(world.http, token).tell("/nodes/join", {"hostname": "h"})
        node = Caller(world.http, joined["key"])
        path = f"/nodes/{joined['node_id']}/register"
        assert (await node.tell(path, {"hostname": "h"}))["epoch"] == 1


# nodes -----------------------------------------------------------------------


@pytest.mark.spec("C62")
async def test_only_a_join_token_lets_a_machine_in(world: World) -> None:
    for who in (world.admin, world.operate, world.submit, world.read):
        answer = await who.post("/nodes/join", {"hostname": "h"})
        fault(answer, 403, "forbidden")
    wrong = Caller(world.http, "corral_0123456789ab_wrong")
    answer = await wrong.post("/nodes/join", {"hostname": "h"})
    fault(answer, 401, "unauthenticated")
    node = await world.node()
    assert (await world.read.ask("/nodes"))["nodes"][0]["node_id"] == node.id


async def test_a_token_lets_in_as_many_as_it_says(world: World) -> None:
    told = await world.admin.tell("/join-tokens", {"uses": 2})
    assert told["uses"] == 2
    joiner = Caller(world.http, told["token"])
    for _ in range(2):
        said(await joiner.post("/nodes/join", {"hostname": "h"}))
    answer = await joiner.post("/nodes/join", {"hostname": "h"})
    fault(answer, 401, "unauthenticated")
    assert (await world.read.ask("/nodes"))["total"] == 2


async def test_a_token_is_not_spent_by_a_bad_request(world: World) -> None:
    token = (await world.admin.tell("/join-tokens", {"uses": 1}))["token"]
    joiner = Caller(world.http, token)
    for wrong in ({}, {"hostname": ""}, {"hostname": "a\nb"}, {"hostname": "x" * 300}):
        fault(await joiner.post("/nodes/join", wrong), 422, "invalid_field")
    said(await joiner.post("/nodes/join", {"hostname": "h"}))


async def test_a_token_ends_with_its_time(world: World) -> None:
    told = await world.admin.tell("/join-tokens", {"ttl_s": 60, "uses": 5})
    assert told["expires_at"] == "2026-01-01T00:01:00Z"
    world.clock.step(61)
    answer = await Caller(world.http, told["token"]).post(
        "/nodes/join", {"hostname": "h"}
    )
    fault(answer, 401, "unauthenticated")


@pytest.mark.spec("C62")
async def test_a_node_cannot_speak_for_another_or_for_its_workers(world: World) -> None:
    one, two = await world.node(declared("w")), await world.node(declared("w"))
    worker = one.workers["w"]
    await worker.register()
    report = {"incarnation": worker.incarnation, "report_id": "1"}
    attempts: list[tuple[str, str, Any]] = [
        ("POST", f"/workers/{worker.id}/reports", report),
        ("POST", f"/workers/{worker.id}/register", {"pid": 1, "epoch": 1}),
        ("GET", f"/nodes/{one.id}/desired", None),
        ("POST", f"/nodes/{one.id}/beat", {"epoch": one.epoch}),
        ("POST", f"/nodes/{one.id}/register", {"hostname": "h"}),
    ]
    for method, path, body in attempts:
        answer = await two.caller.send(method, path, json=body)
        fault(answer, 403, "forbidden")
        assert (await one.caller.send(method, path, json=body)).is_success


async def test_a_node_sees_neither_tasks_nor_other_nodes(world: World) -> None:
    node = await world.node()
    for path in ("/tasks", "/nodes", "/workers", "/cluster/status", "/events"):
        fault(await node.caller.get(path), 403, "forbidden")


# limits ----------------------------------------------------------------------


def limited(**more: float) -> ManagerConfig:
    return ManagerConfig(SECRET, limits=RateLimits(**more))


@pytest.mark.spec("D21")
async def test_a_key_that_asks_too_often_is_told_to_wait() -> None:
    async with running(limited(per_s=0.5, burst=3)) as world:
        for left in ("2", "1", "0"):
            answer = await world.read.get("/job-types")
            assert answer.headers["x-ratelimit-limit"] == "3"
            assert answer.headers["x-ratelimit-remaining"] == left
        answer = await world.read.get("/job-types")
        fault(answer, 429, "rate_limited")
        assert answer.headers["retry-after"] == "2"
        assert answer.headers["x-ratelimit-limit"] == "3"
        assert answer.headers["x-ratelimit-remaining"] == "0"
        assert answer.headers["x-ratelimit-reset"] == "6"
        assert (await world.submit.get("/job-types")).status_code == 200
        world.clock.step(2)
        assert (await world.read.get("/job-types")).status_code == 200


async def test_a_nodes_own_calls_are_not_limited() -> None:
    async with running(limited(per_s=0.1, burst=3)) as world:
        node = await world.node()
        for _ in range(20):
            await node.beat()


@pytest.mark.spec("D21")
async def test_an_address_that_guesses_keys_is_told_to_wait() -> None:
    async with running(limited(failures_per_min=5)) as world:
        guess = Caller(world.http, "corral_a_b")
        for _ in range(5):
            fault(await guess.get("/tasks"), 401, "unauthenticated")
        answer = await guess.get("/tasks")
        fault(answer, 429, "rate_limited")
        assert int(answer.headers["retry-after"]) > 0
        assert answer.headers["x-ratelimit-remaining"] == "0"
        good = await world.read.get("/tasks")
        assert good.status_code == 200, "who has a key is not held up by who has none"
        world.clock.step(60)
        fault(await guess.get("/tasks"), 401, "unauthenticated")


# audit -----------------------------------------------------------------------


async def test_every_change_leaves_an_audit_row(world: World) -> None:
    worker = await world.worker("echo")
    task_id = await world.submit.submit()
    await world.submit.tell("/tasks/batch", {"tasks": [{"task_type": "echo"}]})
    await world.submit.delete(f"/tasks/{task_id}")
    await world.submit.post(f"/tasks/{task_id}/requeue")
    await world.operate.tell("/job-types", {"name": "x"})
    launch = {"worker_class": "a:B", "node_id": worker.node.id}
    (launched,) = (await world.operate.tell("/workers", launch))["workers"]
    await world.operate.delete(f"/workers/{launched['worker_id']}")
    await world.admin.tell("/cluster/drain")
    rows = await audit(world)
    assert all(row.allowed and row.actor and row.request_id for row in rows)
    assert [(row.action, row.target) for row in reversed(rows)][4:] == [
        ("task.submit", task_id),
        ("task.submit_many", "1 tasks"),
        ("task.cancel", task_id),
        ("task.requeue", task_id),
        ("job_type.save", "x"),
        ("worker.launch", worker.node.id),
        ("worker.stop", launched["worker_id"]),
        ("cluster.drain", "cluster"),
    ]
    assert [row.action for row in reversed(rows)][:4] == [
        "join_token.create",
        "node.join",
        "node.register",
        "worker.register",
    ]
    assert await world.store.inner.access.check_audit()


async def test_every_denial_leaves_an_audit_row(world: World) -> None:
    headers = {"X-Request-ID": "r-1"}
    await world.nobody.send("GET", "/tasks", headers=headers)
    await world.read.send("DELETE", "/tasks/t1", headers=headers)
    newest, oldest = await audit(world)
    assert (oldest.action, oldest.target) == ("GET /tasks", "unauthenticated")
    assert (newest.action, newest.target) == ("DELETE /tasks/t1", "forbidden")
    assert (oldest.actor, oldest.allowed) == ("", False)
    assert newest.actor
    assert {row.request_id for row in (newest, oldest)} == {"r-1"}
    assert {row.ip for row in (newest, oldest)} == {"127.0.0.1"}


async def test_a_refused_websocket_leaves_an_audit_row(world: World) -> None:
    await try_socket(world, "/engine", None)
    (row,) = await audit(world)
    assert (row.action, row.allowed) == ("WS /engine", False)


async def test_a_flood_of_wrong_keys_does_not_flood_the_audit_trail() -> None:
    async with running(limited(failures_per_min=5)) as world:
        for _ in range(50):
            await world.nobody.get("/tasks")
        assert len(await audit(world)) == 5


async def test_audit_rows_wait_out_a_store_that_is_away(world: World) -> None:
    await world.nobody.get("/tasks")
    world.store.is_down = True
    with pytest.raises(Exception, match="switched off"):
        await world.manager.access.audit.flush()
    world.store.is_down = False
    assert len(await audit(world)) == 1
