"""/objects: who may put and get them, what is refused, and how damage is told."""

from __future__ import annotations

import hashlib
from typing import Any

import httpx
import pytest

from corral.client.calls.objects import download, upload
from corral.client.http.endpoint import Flow, Response
from corral.client.http.errors import as_error
from corral.errors import CorralError, Forbidden, Unavailable
from tests.unit.api.world import Caller, World, fault, running, said

DATA = b"print('hello')\n"
DIGEST = hashlib.sha256(DATA).hexdigest()
PATH = f"/objects/{DIGEST}"


async def put(who: Caller, data: bytes = DATA, path: str = PATH) -> httpx.Response:
    return await who.send("PUT", path, content=data)


async def drive(who: Caller, flow: Flow[Any]) -> tuple[Any, list[str]]:
    """A call of the client against this manager: its value, and what it sent."""
    sent: list[str] = []
    try:
        step = next(flow)
        while True:
            assert step.is_repeatable
            sent.append(step.method)
            answer = await who.send(step.method, step.path, content=step.body)
            got = Response(answer.status_code, answer.content, answer.headers)
            is_error = got.status >= 400
            step = flow.throw(as_error(got, "")) if is_error else flow.send(got)
    except StopIteration as end:
        return end.value, sent


async def damage(world: World, data: bytes) -> None:
    backend = world.manager.ctx.objects._backend
    await backend.put_async(f"{DIGEST[:2]}/{DIGEST}", data)


async def test_an_object_comes_back_as_it_was_put(world: World) -> None:
    answer = await put(world.operate)
    assert answer.status_code == 201
    assert said(answer) == {"digest": DIGEST, "size": len(DATA)}
    answer = await world.read.get(PATH)
    assert answer.content == DATA
    assert answer.headers["content-type"] == "application/octet-stream"


async def test_putting_it_again_is_no_news(world: World) -> None:
    assert (await put(world.operate)).status_code == 201
    assert (await put(world.operate)).status_code == 200
    assert (await world.read.get(PATH)).content == DATA


async def test_head_tells_whether_it_is_there_and_how_large(world: World) -> None:
    assert (await world.read.send("HEAD", PATH)).status_code == 404
    await put(world.operate)
    answer = await world.read.send("HEAD", PATH)
    assert answer.status_code == 200
    assert answer.headers["content-length"] == str(len(DATA))
    assert answer.content == b""


async def test_users_and_nodes_get_and_who_may_submit_puts(world: World) -> None:
    node = (await world.node()).caller
    for who in (world.read, node):
        fault(await put(who), 403, "forbidden")
    await put(world.submit)
    for who in (world.read, world.submit, world.operate, world.admin, node):
        assert (await who.get(PATH)).content == DATA
        assert (await who.send("HEAD", PATH)).status_code == 200
    token = (await world.admin.tell("/join-tokens", {"uses": 1}))["token"]
    for stranger, status, code in (
        (world.nobody, 401, "unauthenticated"),
        (Caller(world.http, token), 403, "forbidden"),
    ):
        fault(await stranger.get(PATH), status, code)
        assert (await stranger.send("HEAD", PATH)).status_code == status


async def test_bytes_under_a_wrong_digest_are_refused(world: World) -> None:
    answer = await put(world.operate, DATA + b"x")
    assert fault(answer, 422, "invalid_field")["details"] == {"field": "digest"}
    fault(await world.read.get(PATH), 404, "not_found")


async def test_a_name_that_is_no_digest_is_refused(world: World) -> None:
    for name in ("x", DIGEST.upper(), DIGEST + "0", "..%2f..%2fetc"):
        path = f"/objects/{name}"
        for answer in (await world.read.get(path), await put(world.operate, path=path)):
            assert answer.status_code in (404, 422), name
            assert answer.json()["error"]["code"] in ("invalid_field", "not_found")


async def test_a_body_beyond_the_limit_is_refused() -> None:
    async with running(batch_body_limit=1000) as world:
        data = b"x" * 1001
        path = f"/objects/{hashlib.sha256(data).hexdigest()}"
        answer = await put(world.operate, data, path)
        fault(answer, 413, "too_large")
        fault(await world.read.get(path), 404, "not_found")


async def test_a_damaged_object_is_told_as_such(world: World) -> None:
    await put(world.operate)
    await damage(world, b"rotten")
    error = fault(await world.read.get(PATH), 500, "corrupt_object")
    assert error["details"] == {"digest": DIGEST}
    await put(world.operate)
    assert (await world.read.get(PATH)).content == DATA


async def test_a_put_and_a_refusal_leave_audit_rows(world: World) -> None:
    await put(world.read)
    await world.nobody.get(PATH)
    await put(world.operate)
    await world.manager.access.audit.flush()
    rows = await world.store.inner.access.audit(10)
    assert [(r.action, r.target, r.allowed) for r in rows] == [
        ("object.put", DIGEST, True),
        (f"GET {PATH}", "unauthenticated", False),
        (f"PUT {PATH}", "forbidden", False),
    ]
    assert rows[0].data == {"size": len(DATA)}


async def test_the_description_says_that_objects_are_bytes(world: World) -> None:
    document = await world.read.ask("/openapi.json")
    calls = document["paths"]["/objects/{digest}"]
    assert set(calls) == {"put", "get", "head"}
    binary = {"schema": {"type": "string", "format": "binary"}}
    sent = calls["put"]["requestBody"]["content"]
    assert sent == {"application/octet-stream": binary}
    got = calls["get"]["responses"]["200"]["content"]
    assert got == {"application/octet-stream": binary}


async def test_the_client_sends_what_is_missing_or_damaged_and_nothing_else(
    world: World,
) -> None:
    who = world.operate
    assert await drive(who, upload(DATA)) == (DIGEST, ["HEAD", "PUT"])
    assert await drive(who, upload(DATA)) == (DIGEST, ["HEAD"])
    await damage(world, DATA[:-1])
    assert await drive(who, upload(DATA)) == (DIGEST, ["HEAD", "PUT"])
    assert await drive(who, download(DIGEST)) == (DATA, ["GET"])


async def test_the_client_is_told_why_it_may_not_upload(world: World) -> None:
    with pytest.raises(Forbidden, match="submit"):
        await drive(world.read, upload(DATA))


def test_the_client_takes_no_silence_for_a_missing_object() -> None:
    flow = upload(DATA)
    next(flow)
    away = as_error(Response(503, b""), "")
    with pytest.raises(CorralError) as caught:
        flow.throw(away)
    assert caught.value is away


def test_the_client_hands_out_no_bytes_changed_on_their_way() -> None:
    flow = download(DIGEST)
    next(flow)
    with pytest.raises(Unavailable, match="changed on their way"):
        flow.send(Response(200, DATA + b"x"))


def framed(*blobs: bytes) -> bytes:
    return b"".join(len(blob).to_bytes(4, "big") + blob for blob in blobs)


async def test_several_objects_come_in_one_request(world: World) -> None:
    blobs = (DATA, b"", b"x" * 100_000)
    digests = [hashlib.sha256(blob).hexdigest() for blob in blobs]
    asked = {"digests": digests}
    assert (await world.operate.tell("/objects/missing", asked))["missing"] == digests
    answer = await world.operate.post("/objects", framed(*blobs))
    assert answer.status_code == 201
    assert said(answer) == {"digests": digests, "size": 100_000 + len(DATA)}
    assert (await world.operate.tell("/objects/missing", asked))["missing"] == []
    for digest, blob in zip(digests, blobs, strict=True):
        assert (await world.read.get(f"/objects/{digest}")).content == blob
    sizes = [len(DATA), 1, 100_000]
    told = await world.operate.tell("/objects/missing", {**asked, "sizes": sizes})
    assert told["missing"] == [digests[1]], "of another size it is damaged"


async def test_nodes_send_several_objects_and_readers_do_not(world: World) -> None:
    node = (await world.node()).caller
    assert (await node.post("/objects", framed(DATA))).status_code == 201
    asked = {"digests": [DIGEST]}
    assert (await node.tell("/objects/missing", asked)) == {"missing": []}
    fault(await world.read.post("/objects", framed(DATA)), 403, "forbidden")
    fault(await world.read.post("/objects/missing", asked), 403, "forbidden")


async def test_only_what_somebody_put_is_code(world: World) -> None:
    node = (await world.node()).caller
    await node.post("/objects", framed(DATA))
    code = f"{PATH}?as=code"
    assert (await node.get(PATH)).content == DATA
    assert (
        "not sent to be run" in fault(await node.get(code), 409, "conflict")["message"]
    )
    assert (await node.send("HEAD", code)).status_code == 404
    await put(world.submit)
    assert (await node.get(code)).content == DATA
    assert (await node.send("HEAD", code)).status_code == 200
    fault(await node.get(f"{PATH}?as=song"), 422, "invalid_field")


async def test_half_an_object_is_refused_with_all_that_came_along(
    world: World,
) -> None:
    for body in (framed(DATA)[:-1], framed(DATA) + b"\0\0", b"\xff" * 4):
        fault(await world.operate.post("/objects", body), 400, "bad_request")
    fault(await world.read.get(PATH), 404, "not_found")


async def test_what_cannot_be_asked_for_is_refused(world: World) -> None:
    for asked in (
        {"digests": ["../../etc/passwd"]},
        {"digests": [DIGEST], "sizes": [1, 2]},
        {"digests": [DIGEST] * 10_001},
        {"digests": "all"},
    ):
        answer = await world.operate.post("/objects/missing", asked)
        fault(answer, 422, "invalid_field")
