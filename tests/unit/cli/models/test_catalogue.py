"""`corral models list | show | add | pull | remove`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import StandIn

FILE = {"name": "model.safetensors", "size": 3 << 30, "sha256": "a" * 64}
MEASURE = {
    "device": "H200", "precision": "auto", "memory_mb": 610.0, "load_time": 2.5,
    "loads": 3, "batch_memory_mb": {"8": 90.5, "1": 12.0, "16": 170.0},
}  # fmt: skip
PLACE = {
    "worker_id": "w-0123456789", "device": "cuda", "precision": "bfloat16",
    "memory_mb": 600.0, "layers": {"cuda:0": 20, "cpu": 4},
}  # fmt: skip
MODEL = {
    "name": "llama", "type": "llm", "source": "hf:owner/llama", "revision": "abc",
    "status": "ready", "size_bytes": 3 << 30, "memory_mb": 610.0, "usage_count": 7,
    "measures": [MEASURE], "workers": ["w-0123456789"], "tags": ["chat"],
}  # fmt: skip
WHOLE = {**MODEL, "files": [FILE], "placed": [PLACE]}


def test_the_catalogue_is_listed_page_by_page(manager: StandIn, corral: Corral) -> None:
    manager.on("GET /models", {"models": [MODEL], "total": 1})
    (row,) = corral("models", "list").out.splitlines()[1:]
    for word in ("llama", "llm", "ready", "3.0 GB", "610 MB", "7", "hf:owner/llama"):
        assert word in row
    told = json.loads(corral("models", "list", "--json", "--type", "llm").out)
    assert told[0]["name"] == "llama"
    assert manager.asked("GET /models")[-1].query["type"] == "llm"
    manager.on("GET /models", {"models": [], "total": 0})
    assert "corral models add" in corral("models", "list").err


def test_one_model_is_shown_with_files_and_measures(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("GET /models/llama", WHOLE)
    shown = corral("models", "show", "llama").out
    for word in ("H200", "2.5 s", "model.safetensors", "a" * 64, "w-0123456789"):
        assert word in shown
    assert "1: 12 MB, 8: 90 MB, 16: 170 MB" in shown
    assert "20 on cuda:0, 4 on cpu" in shown
    assert json.loads(corral("models", "show", "llama", "--json").out)["files"]


def test_adding_waits_for_the_source_to_be_read(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("POST /models", {**MODEL, "status": "reading"})
    manager.on("GET /models/llama", WHOLE)
    done = corral(
        "models", "add", "llama", "hf:owner/llama", "--type", "llm", "--tag", "chat"
    )
    assert done.out == "added llama: 1 files, 3.0 GB\n"
    sent = manager.asked("POST /models")[-1].json
    assert (sent["source"], sent["type"], sent["tags"]) == (
        "hf:owner/llama", "llm", ["chat"],
    )  # fmt: skip
    assert sent["trust_remote_code"] is False
    quick = corral("models", "add", "llama", "hf:owner/llama", "--no-wait")
    assert quick.out == "added llama: reading\n"


def test_a_source_that_cannot_be_read_fails_the_command(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("POST /models", {**MODEL, "status": "failed", "error": "no bucket"})
    done = corral("models", "add", "llama", "s3://nowhere/x")
    assert done.code != 0
    assert "llama: no bucket" in done.err


def test_an_empty_folder_is_not_sent(corral: Corral, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "nowhere"):
        done = corral("models", "add", "x", str(tmp_path / folder), "--upload")
        assert done.code != 0
        assert "Traceback" not in done.err
        assert folder in done.err


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_a_pull_says_of_each_node_how_it_went(
    manager: StandIn, corral: Corral, status: str
) -> None:
    pulls = [{"node_id": "n1", "worker_id": "w1", "task_id": "t1"}]
    manager.on("POST /models/llama/pull", {"model_name": "llama", "pulls": pulls})
    error = {"kind": "corrupt_model", "message": "it is corrupt"}
    task = {"task_id": "t1", "task_type": "corral.model", "status": status}
    is_failed = status == "failed"
    manager.on("GET /tasks/t1", {**task, "error": error if is_failed else None})
    done = corral("models", "pull", "llama")
    assert (done.code != 0) == is_failed
    said = "n1 failed llama: it is corrupt" if is_failed else "n1 fetched llama"
    assert said in done.out


def test_a_model_is_removed(manager: StandIn, corral: Corral) -> None:
    manager.on("DELETE /models/llama", {"message": "", "name": "llama"})
    assert corral("models", "remove", "llama").out == "removed llama\n"
