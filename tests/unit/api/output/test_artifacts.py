"""Files of tasks over the API: who may keep them, who may fetch them, and when."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from corral.core.tree import CHUNK_BYTES, Tree, TreeFile, encode
from corral.manager.config import ManagerConfig
from corral.manager.upkeep.unused_objects import GRACE_S
from tests.unit.api.world import (
    SECRET,
    FakeWorker,
    Json,
    World,
    fault,
    quiet,
    running,
    said,
)


async def tree_of(world: World, **files: bytes) -> str:
    """A tree whose chunks are stored; the digest of its manifest."""
    made = []
    for name, data in files.items():
        pieces = [
            data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)
        ]
        parts = [await world.manager.ctx.objects.put(piece) for piece in pieces]
        digest = hashlib.sha256(data).hexdigest()
        many = tuple(parts) if len(parts) > 1 else ()
        made.append(TreeFile(name.replace("__", "/"), len(data), digest, parts=many))
    (manifest,) = encode(Tree(tuple(made)))
    return await world.manager.ctx.objects.put(manifest)


def row(item: Json, digest: str, kind: str = "artifacts", **more: Any) -> Json:
    base = {"task_id": item["task_id"], "attempt": item["attempt"]}
    return {**base, "kind": kind, "digest": digest, **more}


async def keep(worker: FakeWorker, told: Json) -> Any:
    return await worker.node.caller.post(f"/workers/{worker.id}/trees", told)


async def running_task(world: World) -> tuple[FakeWorker, Json]:
    worker = await world.worker("echo")
    await world.submit.submit("echo")
    item = worker.take_one()
    await worker.begin(item)
    return worker, item


async def test_what_a_worker_had_kept_is_listed_and_streamed(world: World) -> None:
    worker, item = await running_task(world)
    large = bytes(range(256)) * 40_000
    digest = await tree_of(world, deep__log=b"hello", weights=large, empty=b"")
    answer = await keep(worker, row(item, digest, left_out="2 more left out"))
    assert said(answer) == {
        "digest": digest,
        "files": 3,
        "size": len(large) + 5,
    }
    path = f"/tasks/{item['task_id']}/artifacts"
    listed = await world.read.ask(path)
    assert [a["name"] for a in listed["artifacts"]] == ["deep/log", "empty", "weights"]
    assert (listed["attempt"], listed["left_out"]) == (1, "2 more left out")
    got = await world.read.get(f"{path}/weights")
    assert got.content == large
    assert got.headers["content-length"] == str(len(large))
    assert got.headers["etag"] == f'"{hashlib.sha256(large).hexdigest()}"'
    assert (await world.read.get(f"{path}/deep/log")).content == b"hello"
    assert (await world.read.get(f"{path}/empty")).content == b""


@pytest.mark.parametrize(
    ("asked", "status", "start", "end"),
    [
        ("bytes=0-0", 206, 0, 1),
        (f"bytes={CHUNK_BYTES - 1}-{CHUNK_BYTES}", 206, CHUNK_BYTES - 1, None),
        ("bytes=5-", 206, 5, 10_240_000),
        ("bytes=10239999-99999999", 206, 10_239_999, 10_240_000),
        ("bytes=10240000-", 416, 0, 0),
        ("bytes=9-3", 416, 0, 0),
        ("bytes=-5", 200, 0, 10_240_000),
        ("lines=1-2", 200, 0, 10_240_000),
    ],
)
async def test_a_range_of_a_file_may_be_asked_for(
    world: World, asked: str, status: int, start: int, end: int | None
) -> None:
    worker, item = await running_task(world)
    data = bytes(range(256)) * 40_000
    await keep(worker, row(item, await tree_of(world, f=data)))
    path = f"/tasks/{item['task_id']}/artifacts/f"
    got = await world.read.send("GET", path, headers={"Range": asked})
    assert got.status_code == status
    assert got.content == data[start : CHUNK_BYTES + 1 if end is None else end]


async def test_only_the_worker_that_holds_the_attempt_may_keep_files(
    world: World,
) -> None:
    worker, item = await running_task(world)
    other = await world.worker("other")
    digest = await tree_of(world, f=b"x")
    told = row(item, digest)
    fault(await keep(other, told), 409, "conflict")
    fault(await keep(worker, {**told, "attempt": 2}), 409, "conflict")
    fault(await keep(worker, {**told, "task_id": "nobody"}), 409, "conflict")
    path = f"/workers/{worker.id}/trees"
    fault(await other.node.caller.post(path, told), 403, "forbidden")
    fault(await world.admin.post(path, told), 403, "forbidden")
    assert (await keep(worker, told)).status_code == 201
    await worker.fail(item)
    assert (await keep(worker, told)).status_code == 201, "it tidies up"
    await world.submit.post(f"/tasks/{item['task_id']}/requeue")
    fault(await keep(worker, told), 409, "conflict")


async def test_files_of_a_cancelled_task_may_still_come(world: World) -> None:
    worker, item = await running_task(world)
    await world.submit.delete(f"/tasks/{item['task_id']}")
    digest = await tree_of(world, f=b"x")
    assert (await keep(worker, row(item, digest))).status_code == 201


async def test_what_is_no_tree_or_unknown_is_refused(world: World) -> None:
    worker, item = await running_task(world)
    blob = await world.manager.ctx.objects.put(b"no tree")
    fault(await keep(worker, row(item, blob)), 422, "invalid_field")
    fault(await keep(worker, row(item, "0" * 64)), 404, "not_found")
    fault(await keep(worker, row(item, blob, "other")), 422, "invalid_field")
    path = f"/tasks/{item['task_id']}/artifacts"
    assert (await world.read.ask(path))["artifacts"] == []
    fault(await world.read.get(f"{path}/f"), 404, "not_found")
    fault(await world.read.get("/tasks/nobody/artifacts"), 404, "task_not_found")
    fault(await world.nobody.get(path), 401, "unauthenticated")


async def test_more_than_the_limit_is_refused() -> None:
    config = ManagerConfig(SECRET, artifact_limit_bytes=10)
    async with running(config) as world:
        worker, item = await running_task(world)
        digest = await tree_of(world, f=b"x" * 11)
        fault(await keep(worker, row(item, digest)), 413, "too_large")


async def test_a_checkpoint_goes_to_whoever_has_the_next_attempt(world: World) -> None:
    worker, item = await running_task(world)
    digest = await tree_of(world, f=b"x")
    path = f"/workers/{worker.id}/checkpoints/{item['task_id']}"
    caller = worker.node.caller
    assert (await caller.ask(path, attempt=1))["digest"] is None
    await keep(worker, row(item, digest, "checkpoint"))
    await worker.fail(item)
    await world.submit.post(f"/tasks/{item['task_id']}/requeue")
    await quiet()
    again = worker.take_one()
    assert again["attempt"] == 2
    assert (await caller.ask(path, attempt=2))["digest"] == digest
    fault(await caller.get(path, attempt=1), 409, "conflict")
    await worker.finish(again)
    await world.submit.post(f"/tasks/{item['task_id']}/requeue")
    await quiet()
    third = worker.take_one()
    assert (await caller.ask(path, attempt=third["attempt"]))["digest"] is None


async def aged(world: World, seconds: float) -> None:
    """Let the cluster's clock be so far after the objects' own times."""
    real = datetime.now(UTC) + timedelta(seconds=seconds)
    world.clock.step((real - world.clock.now()).total_seconds())


async def test_what_nothing_names_any_more_is_removed_and_nothing_else(
    world: World,
) -> None:
    objects, keep_s = world.manager.ctx.objects, world.manager.config.keep_objects_s
    worker, item = await running_task(world)
    large = b"x" * (CHUNK_BYTES + 1)
    artifact = await tree_of(world, large=large)
    await keep(worker, row(item, artifact))
    source = await tree_of(world, code=b"print(1)")
    await world.submit.submit("echo", parameters={"archive": source})
    typed = await tree_of(world, worker=b"class W: ...")
    await world.operate.tell(
        "/register_worker_type",
        {
            "worker_name": "w",
            "worker_class": "m:W",
            "environment": {"archive": {"digest": typed}},
        },
    )
    stray = await objects.put(b"stray")
    asked = await objects.put(b"asked for")
    stale = await tree_of(world, old=b"stale")
    garbage = world.manager.upkeep.objects
    assert await garbage.collect() == 0, "too young"
    await aged(world, keep_s + 60)
    await world.operate.tell("/objects/missing", {"digests": [asked]})
    assert await garbage.collect() == 3
    for digest in (stray, stale, hashlib.sha256(b"stale").hexdigest()):
        assert not await objects.exists(digest)
    for data in (b"print(1)", b"class W: ...", large[:CHUNK_BYTES], b"x"):
        assert await objects.exists(hashlib.sha256(data).hexdigest())
    for digest in (artifact, source, typed, asked):
        assert await objects.exists(digest)
    world.clock.step(GRACE_S + 1)
    await garbage.step()
    assert not await objects.exists(asked)


async def test_an_outage_removes_nothing(world: World) -> None:
    stray = await world.manager.ctx.objects.put(b"stray")
    await aged(world, world.manager.config.keep_objects_s + 60)
    world.store.is_down = True
    with pytest.raises(Exception, match="store"):
        await world.manager.upkeep.objects.collect()
    assert await world.manager.ctx.objects.exists(stray)
