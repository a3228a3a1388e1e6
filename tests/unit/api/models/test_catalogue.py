"""The catalogue of models: sources are read, figures counted, nodes served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corral.core.tasks.job_type import MODEL_TASK
from corral.manager.models.sources import SourceConfig
from tests.model_server import COMMIT, Hub, ModelManager, serving, sha256
from tests.twins.store import MemoryStore
from tests.unit.api.models.test_memory import beat, drawer, held, word
from tests.unit.api.world import CONFIG, FakeWorker, Json, World, fault, running

WEIGHTS = bytes(range(256)) * 40
FILES = {"config.json": b'{"n": 1}', "model.safetensors": WEIGHTS}


def write(folder: Path, files: dict[str, bytes] = FILES) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving(Hub()) as server:
        server.repos["owner/tiny"] = {**FILES, "pytorch_model.bin": b"x", ".git": b""}
        yield server


@pytest.fixture
def service() -> Iterator[ModelManager]:
    with serving(ModelManager()) as server:
        yield server


def sources(tmp_path: Path, **more: Any) -> Any:
    config = SourceConfig((tmp_path / "models",), hub_cache=tmp_path / "hub", **more)
    return replace(CONFIG, sources=config)


@pytest.fixture
async def world(
    tmp_path: Path, hub: Hub, service: ModelManager
) -> AsyncIterator[World]:
    more = {"service_path": tmp_path / "theirs", "service_url": service.url}
    async with running(sources(tmp_path, hub_url=hub.url, **more)) as made:
        yield made


async def settled(world: World, name: str) -> Json:
    """The model, once its source has been read."""
    async with asyncio.timeout(60):
        while True:
            told = await world.read.ask(f"/models/{name}")
            if told["status"] != "reading":
                return told
            await asyncio.sleep(0.02)


async def added(world: World, name: str, source: str, **more: Any) -> Json:
    body = {"name": name, "source": source, **more}
    answer = await world.admin.post("/models", body)
    assert answer.status_code == 201, answer.text
    return await settled(world, name)


def hashes(told: Json) -> dict[str, str]:
    return {file["name"]: file["sha256"] for file in told["files"]}


RIGHT = {name: sha256(data) for name, data in FILES.items()}


async def test_a_folder_is_read_with_sizes_and_hashes(
    world: World, tmp_path: Path
) -> None:
    write(tmp_path / "models" / "tiny")
    told = await added(world, "tiny", "tiny", type="llm", tags=["small"])
    assert (told["status"], hashes(told)) == ("ready", RIGHT)
    assert told["size_bytes"] == sum(map(len, FILES.values()))
    listed = await world.read.ask("/models", type="llm", tag="small", search="TIN")
    assert [row["name"] for row in listed["models"]] == ["tiny"]
    assert listed["models"][0]["files"] == []
    assert (await world.read.ask("/models", type="tts"))["total"] == 0
    first = told["revision"]
    config = b'{"architectures": ["BertForSequenceClassification"]}'
    write(tmp_path / "models" / "tiny", {"config.json": config})
    again = await added(world, "tiny", "tiny")
    assert again["revision"] != first
    # What nobody said, its configuration says.
    assert again["type"] == "classifier"


async def test_a_hub_model_has_only_the_files_that_are_loaded(
    world: World, hub: Hub
) -> None:
    told = await added(world, "tiny", "hf:owner/tiny")
    assert (told["revision"], hashes(told)) == (COMMIT, RIGHT)
    assert told["type"] == "llm"
    large = ("GET", f"/owner/tiny/resolve/{COMMIT}/model.safetensors")
    assert large not in hub.asked
    worker = await drawer(world)
    bill = await worker.node.caller.ask(f"/workers/{worker.id}/models/tiny")
    urls = {file["name"]: file["url"] for file in bill["files"]}
    assert urls["model.safetensors"] == hub.url + large[1]


async def test_a_model_that_is_not_everybodys_comes_by_way_of_the_manager(
    tmp_path: Path, hub: Hub
) -> None:
    hub.token = "hub-token"
    async with running(sources(tmp_path, hub_url=hub.url)) as world:
        refused = await added(world, "tiny", "hf:owner/tiny")
        assert "CORRAL_MODEL_HUB_TOKEN" in refused["error"]
    more = {"hub_url": hub.url, "hub_token": "hub-token"}
    async with running(sources(tmp_path, **more)) as world:
        assert hashes(await added(world, "tiny", "hf:owner/tiny")) == RIGHT
        worker = await drawer(world)
        path = f"/workers/{worker.id}/models/tiny"
        bill = await worker.node.caller.ask(path)
        assert not [file for file in bill["files"] if "url" in file]
        assert "hub-token" not in str(bill)
        file = f"{path}/files/model.safetensors"
        asked = {"Range": "bytes=100-"}
        rest = await worker.node.caller.send("GET", file, headers=asked)
        assert (rest.status_code, rest.content) == (206, WEIGHTS[100:])
        hub.stop()
        away = await worker.node.caller.get(file)
        hub.start()
        fault(away, 503, "unavailable")


async def test_the_hub_is_not_asked_for_what_its_cache_has(
    world: World, hub: Hub, tmp_path: Path
) -> None:
    base = tmp_path / "hub" / "models--owner--tiny"
    for name, data in FILES.items():
        write(base / "blobs", {sha256(data): data})
        link = base / "snapshots" / "abc" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(base / "blobs" / sha256(data))
    write(base / "refs", {"main": b"abc"})
    hub.stop()
    told = await added(world, "tiny", "hf:owner/tiny")
    assert (told["revision"], hashes(told)) == ("abc", RIGHT)
    missing = await added(world, "other", "hf:owner/other")
    hub.start()
    assert missing["status"] == "failed"
    assert "the model hub at 127.0.0.1 does not answer" in missing["error"]


async def test_what_is_wrong_with_a_source_is_said(
    world: World, hub: Hub, tmp_path: Path
) -> None:
    async def refused(status: int, code: str, **more: Any) -> str:
        body = {"name": "x", "source": "hf:a/b", **more}
        return str(fault(await world.admin.post("/models", body), status, code))

    assert "unknown" in await refused(422, "invalid_field", type="magic")
    assert "hf:owner/name" in await refused(422, "invalid_field", source="hf:a/../b")
    assert "a source is" in await refused(422, "invalid_field", source="ftp://x/y")
    assert "no folder" in await refused(404, "not_found", source="nowhere")
    await refused(422, "invalid_field", name="assign")
    await refused(422, "invalid_field", name="../x")
    await refused(422, "invalid_field", memory_mb=-1)
    evil = [{"name": "../x", "size": 1, "sha256": "0" * 64}]
    await refused(422, "invalid_field", source="upload", files=evil)
    gone = [{"name": "x", "size": 1, "sha256": "0" * 64}]
    said = await refused(422, "invalid_field", source="upload", files=gone)
    assert "not stored" in said
    failed = await added(world, "x", "hf:owner/nobody")
    assert "the hub has no model owner/nobody" in failed["error"]
    fault(await world.read.get("/models/none"), 404, "not_found")
    fault(await world.operate.delete("/models/none"), 404, "not_found")
    fault(await world.operate.post("/models/none/pull"), 404, "not_found")
    fault(await world.operate.post("/models/x/pull"), 409, "conflict")


async def test_only_an_administrator_trusts_code_and_reads_any_folder(
    world: World, tmp_path: Path
) -> None:
    write(tmp_path / "models" / "tiny")
    write(tmp_path / "elsewhere" / "tiny")
    trusted = {"name": "a", "source": "tiny", "trust_remote_code": True}
    fault(await world.operate.post("/models", trusted), 403, "forbidden")
    outside = {"name": "b", "source": str(tmp_path / "elsewhere" / "tiny")}
    fault(await world.operate.post("/models", outside), 403, "forbidden")
    assert (await world.admin.post("/models", trusted)).status_code == 201
    assert (await world.admin.post("/models", outside)).status_code == 201
    inside = {"name": "c", "source": "tiny"}
    assert (await world.operate.post("/models", inside)).status_code == 201
    fault(await world.read.post("/models", inside), 403, "forbidden")
    for name in "abc":
        await settled(world, name)


async def test_nodes_are_given_files_from_where_they_broke_off(
    world: World, tmp_path: Path
) -> None:
    write(tmp_path / "models" / "tiny")
    await added(world, "tiny", "tiny")
    worker = await drawer(world)
    path = f"/workers/{worker.id}/models/tiny"
    bill = await worker.node.caller.ask(path)
    assert {f["name"]: f["sha256"] for f in bill["files"]} == RIGHT
    file = f"{path}/files/model.safetensors"
    whole = await worker.node.caller.get(file)
    assert (whole.status_code, whole.content) == (200, WEIGHTS)
    asked = {"Range": "bytes=100-"}
    rest = await worker.node.caller.send("GET", file, headers=asked)
    assert (rest.status_code, rest.content) == (206, WEIGHTS[100:])
    size = len(WEIGHTS)
    assert rest.headers["content-range"] == f"bytes 100-{size - 1}/{size}"
    fault(await worker.node.caller.get(f"{path}/files/../x"), 404, "not_found")
    fault(await worker.node.caller.get(f"{path}x"), 404, "not_found")
    other = await world.worker("echo")
    fault(await other.node.caller.get(path), 403, "forbidden")


async def test_an_upload_is_kept_by_the_manager_until_it_is_removed(
    world: World,
) -> None:
    rows = []
    for name, data in FILES.items():
        sent = await world.operate.send("PUT", f"/objects/{sha256(data)}", content=data)
        assert sent.status_code == 201
        rows.append({"name": name, "size": len(data), "sha256": sha256(data)})
    body = {"name": "tiny", "source": "upload", "files": rows}
    told = (await world.operate.post("/models", body)).json()
    assert (told["status"], hashes(told)) == ("ready", RIGHT)
    world.clock.step(30 * 86_400)
    assert await world.manager.upkeep.objects._named() >= set(RIGHT.values())
    await world.operate.delete("/models/tiny")
    assert not await world.manager.upkeep.objects._named() & set(RIGHT.values())


async def test_loads_and_uses_are_counted_by_device(
    world: World, tmp_path: Path
) -> None:
    write(tmp_path / "models" / "tiny")
    await added(world, "tiny", "tiny", dtype="float16")
    worker = await drawer(world)
    await world.submit.submit("draw", model_name="tiny")
    await worker.finish(worker.take_one(), models=word(1, held("tiny", 600.0)))
    await world.manager.models.catalogue.step()
    told = await world.read.ask("/models/tiny")
    (seen,) = told["measures"]
    assert (seen["precision"], seen["memory_mb"], seen["loads"]) == ("float16", 600, 1)
    assert seen["device"] not in ("", "cpu")
    assert (told["usage_count"], told["workers"]) == (1, [worker.id])
    assert told["memory_mb"] == 600.0
    (row,) = await world.manager.ctx.store.models.catalogue()
    assert (row.uses, row.measures[0].load_s) == (1, 2.0)


async def test_the_catalogue_outlives_the_manager(tmp_path: Path) -> None:
    write(tmp_path / "models" / "tiny")
    store = MemoryStore()
    async with running(sources(tmp_path), inner=store) as world:
        await added(world, "tiny", "tiny")
    async with running(sources(tmp_path), inner=store) as world:
        assert hashes(await world.read.ask("/models/tiny")) == RIGHT


async def test_a_model_larger_than_any_card_is_refused_with_the_largest(
    world: World, tmp_path: Path
) -> None:
    write(tmp_path / "models" / "tiny")
    await added(world, "huge", "tiny", memory_mb=5000)
    await added(world, "fits", "tiny", memory_mb=500)
    worker = await drawer(world)
    body = {"task_type": "draw", "model_name": "huge"}
    said = fault(await world.submit.post("/tasks", body), 422, "invalid_field")
    assert "model huge takes 5000 MB" in said["message"]
    assert f"of {worker.node.id}) has 1024 MB for models" in said["message"]
    await world.submit.submit("draw", model_name="fits")
    await world.submit.submit("draw", model_name="nobody-knows")


async def test_a_pull_is_a_task_of_one_worker_on_each_node(
    world: World, tmp_path: Path
) -> None:
    write(tmp_path / "models" / "tiny")
    await added(world, "tiny", "tiny")
    workers: list[FakeWorker] = [await drawer(world), await world.worker("echo")]
    told = await world.operate.tell("/models/tiny/pull")
    assert {pull["worker_id"] for pull in told["pulls"]} == {w.id for w in workers}
    for worker in workers:
        item = worker.take_one()
        assert (item["job_type"], item["payload"]) == (MODEL_TASK, {"fetch": "tiny"})
        await worker.finish(item, {"model": "tiny"})
    body = {"node_ids": ["n-nowhere"]}
    fault(await world.operate.post("/models/tiny/pull", body), 409, "conflict")


@pytest.mark.spec("A25", "C68", "A28", "B28")
async def test_a_model_manager_is_asked_for_models_and_told_who_has_them(
    world: World, service: ModelManager, tmp_path: Path
) -> None:
    service.add("theirs", type="embedding")
    write(tmp_path / "theirs" / "theirs")
    worker = await drawer(world)
    path = f"/workers/{worker.id}/models"
    await worker.node.caller.ask(f"{path}/theirs")
    told = await settled(world, "theirs")
    assert (told["type"], told["tags"], hashes(told)) == (
        "embedding", ["theirs"], RIGHT,
    )  # fmt: skip
    await worker.report(models=word(1, held("theirs"), held("unknown")))
    await world.manager.models.catalogue.telling.step()  # type: ignore[union-attr]
    assert service.assigned == [("theirs", worker.id)]
    known = service.workers[worker.id]
    assert known["loaded_models"] == ["theirs", "unknown"]
    assert known["hostname"]
    await beat(worker, models=word(2))
    for _ in range(2):
        await world.manager.models.catalogue.telling.step()  # type: ignore[union-attr]
    assert [p for p in service.asked if p[1].endswith("/unassign")] == [
        ("POST", "/models/id-0/unassign")
    ]


@pytest.mark.spec("B28")
async def test_without_its_model_manager_known_models_go_on_and_others_say_why(
    world: World, service: ModelManager, tmp_path: Path
) -> None:
    service.add("theirs")
    write(tmp_path / "theirs" / "theirs")
    worker = await drawer(world)
    path = f"/workers/{worker.id}/models"
    await worker.node.caller.ask(f"{path}/theirs")
    await settled(world, "theirs")
    service.stop()
    bill = await worker.node.caller.ask(f"{path}/theirs")
    assert {f["name"]: f["sha256"] for f in bill["files"]} == RIGHT
    assert (await worker.node.caller.get(f"{path}/theirs/files/config.json")).is_success
    away = await worker.node.caller.get(f"{path}/other")
    said = fault(away, 503, "unavailable")
    assert "the model manager at 127.0.0.1 does not answer" in said["message"]
    await worker.report(models=word(1, held("theirs")))
    await world.manager.models.catalogue.telling.step()  # type: ignore[union-attr]
    service.start()
    world.clock.step(10)
    await world.manager.models.catalogue.telling.step()  # type: ignore[union-attr]
    assert service.assigned == [("theirs", worker.id)]
    fault(await worker.node.caller.get(f"{path}/other"), 404, "not_found")


async def test_a_model_manager_fetches_what_it_does_not_have_yet(
    world: World, service: ModelManager, hub: Hub, tmp_path: Path
) -> None:
    service.add("owner/tiny", status="error")
    told = (
        await world.admin.post(
            "/models", {"name": "tiny", "source": "model-manager:owner/tiny"}
        )
    ).json()
    assert told["status"] == "reading"
    assert await asyncio.to_thread(service.downloading.wait, 60)
    service.models["id-0"]["status"] = "available"
    async with asyncio.timeout(60):
        while world.manager.ctx.cluster.catalogue["tiny"].status == "reading":
            world.clock.step(10)
            await world.manager.models.catalogue.step()
            await asyncio.sleep(0.02)
    assert hashes(await settled(world, "tiny")) == RIGHT
    service.add("bare")
    lost = await added(world, "bare", "model-manager")
    assert "CORRAL_MODEL_MANAGER_PATH" in lost["error"]
