"""What workers and nodes say of models: how they are loaded, lost memory, peers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from corral.core.nodes.peer import is_signed, mark_of
from tests.model_server import sha256
from tests.unit.api.models.test_catalogue import FILES, WEIGHTS, added, sources, write
from tests.unit.api.models.test_memory import beat, drawer, held, word
from tests.unit.api.world import FakeNode, FakeWorker, Json, World, declared, running

FACTS: Json = {
    "device": "cuda",
    "precision": "bfloat16",
    "layers": {"cuda:0": 20, "cpu": 4},
}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running(sources(tmp_path)) as made:
        write(tmp_path / "models" / "tiny")
        await added(made, "tiny", "tiny", dtype="float16")
        yield made


async def test_measures_are_of_the_precision_a_worker_really_loaded(
    world: World,
) -> None:
    worker = await drawer(world)
    await beat(worker, models=word(1, held("tiny", 600.0, **FACTS)))
    told = await world.read.ask("/models/tiny")
    (seen,) = told["measures"]
    assert seen["device"] not in ("", "cpu", "cuda")
    assert (seen["precision"], seen["memory_mb"], seen["load_time"]) == (
        "bfloat16",
        600.0,
        2.0,
    )
    assert told["placed"] == [
        {"worker_id": worker.id, "memory_mb": 600.0, **FACTS},
    ]
    # Another precision on the same card is another measure.
    half = {**FACTS, "precision": "float16"}
    await beat(worker, models=word(2, held("tiny", 300.0, at=2.0, **half)))
    told = await world.read.ask("/models/tiny")
    assert {m["precision"]: m["memory_mb"] for m in told["measures"]} == {
        "bfloat16": 600.0,
        "float16": 300.0,
    }


async def test_what_batches_take_is_kept_by_their_size(world: World) -> None:
    worker = await drawer(world)
    for number, peaks in enumerate(({}, {1: 12.0}, {1: 12.0, 8: 90.5}), 1):
        told = held("tiny", 600.0, **FACTS, peaks=peaks)
        await beat(worker, models=word(number, told))
    await world.manager.models.catalogue.step()
    (seen,) = (await world.read.ask("/models/tiny"))["measures"]
    assert seen["batch_memory_mb"] == {"1": 12.0, "8": 90.5}
    assert seen["loads"] == 1
    (row,) = await world.manager.ctx.store.models.catalogue()
    assert row.measures[0].peaks == ((1, 12.0), (8, 90.5))


async def test_memory_that_did_not_come_back_is_an_event_with_its_figure(
    world: World,
) -> None:
    worker = await drawer(world)
    worn = {"model": "tiny", "left_mb": 480.0, "size_mb": 600.0}
    await beat(worker, models=word(1, held("tiny", 600.0)))
    for number in (2, 3):
        told = {**word(number), "restarts": 1, "worn": worn}
        await beat(worker, models=told)
    await world.manager.models.memory.step()
    events = (await world.read.ask("/events", limit=1000))["events"]
    (event,) = [e for e in events if e["event_type"] == "memory_not_freed"]
    assert event["severity"] == "warning"
    assert event["data"] == {**worn, "worker_id": worker.id}
    assert "480 MB did not come back when model tiny" in event["title"]
    assert (await world.read.ask("/models/tiny"))["workers"] == []


def peer(url: str, secret: str = "s" * 64, **models: str) -> Json:
    return {"url": url, "secret": secret, "models": models}


async def joined(world: World, name: str, ip: str = "10.0.0.1") -> FakeWorker:
    node: FakeNode = await world.node(declared(name, "draw"), ip=ip)
    return await node.workers[name].start()


async def bill(worker: FakeWorker) -> dict[str, list[str]]:
    told = await worker.node.caller.ask(f"/workers/{worker.id}/models/tiny")
    return {file["name"]: file.get("peers", []) for file in told["files"]}


MARK = mark_of((sha256(data), name) for name, data in sorted(FILES.items()))


async def test_a_node_is_sent_to_peers_that_have_the_same_files(world: World) -> None:
    names = ("one", "two", "three")
    one, two, three = [
        await joined(world, name, f"10.0.0.{number}")
        for number, name in enumerate(names, 1)
    ]

    async def say(worker: FakeWorker, told: Json | None) -> None:
        await worker.node.beat(worker.word(), peer=told)

    near, far = "http://10.0.0.1:7001", "http://10.0.0.2:7002"
    await say(one, peer(near, tiny=MARK))
    assert await bill(two) == {name: [] for name in FILES}
    await say(two, peer(far))
    (url,) = (await bill(two))["model.safetensors"]
    told = urlsplit(url)
    query = parse_qs(told.query)
    right, until = sha256(WEIGHTS), int(query["until"][0])
    assert (f"{told.scheme}://{told.netloc}", told.path) == (near, f"/files/{right}")
    assert is_signed("s" * 64, right, until, query["token"][0])
    assert until > world.manager.ctx.clock.now().timestamp() + 60
    # Who takes no part, has another revision, or is oneself is not named.
    assert await bill(three) == {name: [] for name in FILES}
    assert await bill(one) == {name: [] for name in FILES}
    await say(one, peer(near, tiny="another"))
    assert await bill(two) == {name: [] for name in FILES}
    await say(one, peer("http://127.0.0.1:7001", tiny=MARK))
    assert await bill(two) == {name: [] for name in FILES}
    for wrong in ("ftp://10.0.0.1:7001", "http://10.0.0.1", "nonsense"):
        await say(one, peer(wrong, tiny=MARK))
        assert await bill(two) == {name: [] for name in FILES}
    await say(one, None)
    assert await bill(two) == {name: [] for name in FILES}
    shown = await world.read.ask(f"/nodes/{two.node.id}")
    assert (shown["shares_models"], "secret" in str(shown)) == ([], False)


async def test_a_secret_of_a_peer_is_shown_to_nobody(world: World) -> None:
    one = await joined(world, "one")
    secret = f"hidden-{int(time.time())}"
    await one.node.beat(one.word(), peer=peer("http://10.0.0.1:1", secret, tiny=MARK))
    for path in ("/nodes", f"/nodes/{one.node.id}", "/models/tiny", "/workers"):
        told: Any = await world.admin.ask(path)
        assert secret not in str(told)
    assert secret not in repr(world.manager.ctx.cluster.nodes[one.node.id].peer)
