"""Models of the catalogue on a running cluster: added, fetched by nodes, used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.errors import TaskFailed
from tests.acceptance.cluster import Agent, Cluster, until
from tests.model_server import COMMIT, Hub, ModelManager, serving, sha256

READER = "tests.acceptance.reader:Reader=read"
CONFIG = b'{"architectures": ["TinyForCausalLM"]}'
NOTHING = frozenset({"it takes no part"})
LARGE = f"/owner/tiny/resolve/{COMMIT}/model.safetensors"


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with serving(Hub()) as server:
        server.repos["owner/tiny"] = {
            "config.json": CONFIG,
            "model.safetensors": b"from the hub",
        }
        yield server


@pytest.fixture(scope="module")
def service() -> Iterator[ModelManager]:
    with serving(ModelManager()) as server:
        server.add("theirs")
        yield server


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, hub: Hub, service: ModelManager
) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("catalogue")
    write(home / "shared" / "theirs", "from the service")
    running = Cluster.start(
        home,
        [READER],
        CORRAL_MODEL_HUB_URL=hub.url,
        CORRAL_MODEL_HUB_CACHE=str(home / "hub"),
        MODEL_MANAGER_URL=service.url,
        MODEL_MANAGER_PATH=str(home / "shared"),
        CORRAL_MODEL_PEERS="true",
    )
    running.serving("read")
    yield running
    running.stop()


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(CONFIG)
    (folder / "model.safetensors").write_text(text)
    return folder


def read(cluster: Cluster, model: str) -> Any:
    return cluster.client.run("read", {}, model_name=model, timeout=60)


def is_held(cluster: Cluster, model: str) -> bool:
    held = [m.name for worker in cluster.client.models() for m in worker.models]
    return model in held


def gives(cluster: Cluster, node_id: str) -> frozenset[str]:
    """The models whose files a node gives to others."""
    told = cluster.client.find_node(node_id).shares_models
    return NOTHING if told is None else frozenset(told)


def pull(cluster: Cluster, model: str, node_id: str) -> None:
    (told,) = cluster.client.pull_model(model, [node_id])
    until("it is there", lambda: cluster.client.get_task(told.task_id).is_terminal)
    task = cluster.client.get_task(told.task_id)
    assert task.status == "completed", task


def reason(cluster: Cluster, model: str) -> str:
    with pytest.raises(TaskFailed) as caught:
        read(cluster, model)
    return caught.value.message


def test_a_hub_model_is_added_fetched_once_and_used(cluster: Cluster, hub: Hub) -> None:
    added = cluster.corral("models", "add", "tiny", "hf:owner/tiny", "--type", "llm")
    assert "added tiny: 2 files" in added.out, added
    told = read(cluster, "tiny")
    assert (told["text"], told["kind"]) == ("from the hub", "generate")
    cluster.client.unload_model("tiny")
    until("it is unloaded", lambda: not is_held(cluster, "tiny"))
    assert read(cluster, "tiny") == told
    assert hub.asked.count(("GET", LARGE)) == 1
    shown = cluster.corral("models", "show", "tiny").out
    assert sha256(b"from the hub") in shown
    until("uses count", lambda: cluster.client.catalogue_model("tiny").usage_count == 2)
    (model,) = json.loads(cluster.corral("models", "list", "--json").out)
    assert (model["loads"], model["memory_mb"]) == (2, 10.0)


def test_a_new_revision_answers_at_once_though_the_old_is_in_memory(
    cluster: Cluster, tmp_path: Path
) -> None:
    folder = write(tmp_path / "letter", "the first")
    for text in ("the first", "the second"):
        (folder / "model.safetensors").write_text(text)
        made = cluster.corral("models", "add", "letter", str(folder), "--upload")
        assert made.code == 0, made
        assert [read(cluster, "letter")["text"] for _ in range(2)] == [text, text]


def test_a_corrupt_file_fails_the_task_with_both_hashes(
    cluster: Cluster, hub: Hub
) -> None:
    right = b"the right bytes"
    hub.repos["owner/torn"] = {"config.json": CONFIG, "model.safetensors": right}
    cluster.client.add_model("torn", "hf:owner/torn")
    until(
        "its source is read",
        lambda: cluster.client.catalogue_model("torn").status == "ready",
    )
    hub.repos["owner/torn"]["model.safetensors"] = b"the wrong bytes"
    said = reason(cluster, "torn")
    assert "model.safetensors of model torn is corrupt" in said
    assert sha256(right) in said
    assert sha256(b"the wrong bytes") in said


@pytest.mark.spec("C68")
def test_a_model_manager_gives_models_is_told_of_them_and_may_be_away(
    cluster: Cluster, service: ModelManager
) -> None:
    assert read(cluster, "theirs")["text"] == "from the service"
    until("it is told", lambda: "theirs" in [name for name, _ in service.assigned])
    (worker_id,) = {id_ for _, id_ in service.assigned}
    assert worker_id in [w.worker_id for w in cluster.client.workers()]
    service.stop()
    cluster.client.unload_model("theirs")
    until("it is unloaded", lambda: not is_held(cluster, "theirs"))
    assert read(cluster, "theirs")["text"] == "from the service"
    said = reason(cluster, "nobody-has")
    service.start()
    assert "there is no model 'nobody-has'" in said
    assert "the model manager at 127.0.0.1 does not answer" in said


@pytest.fixture(scope="module")
def second(cluster: Cluster) -> Iterator[Agent]:
    """Tests that need it come last: others count on one node."""
    agent = cluster.join("second", [READER], "env", "CORRAL_MODEL_PEERS=true")
    cluster.serving("read", 2)
    yield agent
    agent.stop()


@pytest.mark.spec("B5")
def test_a_model_sent_from_a_folder_is_pulled_to_every_node(
    cluster: Cluster, second: Agent, tmp_path: Path
) -> None:
    folder = write(tmp_path / "mine", "from my folder")
    arguments = ("mine", str(folder), "--upload", "--trust-remote-code")
    assert cluster.corral("models", "add", *arguments).code == 0
    assert cluster.client.catalogue_model("mine").type == "llm"
    pulled = cluster.corral("models", "pull", "mine")
    assert pulled.out.count("fetched mine") == 2, pulled
    told = read(cluster, "mine")
    assert (told["text"], told["trusts"]) == ("from my folder", True)
    assert cluster.corral("models", "remove", "mine").code == 0
    assert cluster.corral("models", "pull", "mine").code != 0


def test_a_node_takes_a_model_from_another_and_checks_what_it_gets(
    cluster: Cluster, second: Agent, hub: Hub
) -> None:
    """The hub is the only source: what it is not asked for came from the other."""
    client = cluster.client
    one, other = sorted({str(worker.node_id) for worker in client.workers()})
    until("one takes part", lambda: gives(cluster, one) is not NOTHING)
    until("and the other", lambda: gives(cluster, other) is not NOTHING)
    for name in ("twice", "turned"):
        files = {"config.json": CONFIG, "model.safetensors": name.encode()}
        hub.repos[f"owner/{name}"] = files
        client.add_model(name, f"hf:owner/{name}")
        pull(cluster, name, one)
    until("it says so", lambda: {"twice", "turned"} <= gives(cluster, one))
    (file,) = cluster.home.rglob("turned/model.safetensors")
    file.write_bytes(b"denrut")
    for name, times in (("twice", 1), ("turned", 2)):
        pull(cluster, name, other)
        large = f"/owner/{name}/resolve/{COMMIT}/model.safetensors"
        assert hub.asked.count(("GET", large)) == times
    files_now = cluster.home.rglob("turned/model.safetensors")
    assert sorted(file.read_bytes() for file in files_now) == [b"denrut", b"turned"]
    said = "".join(log.read_text() for log in cluster.home.rglob("logs/*.log"))
    assert "a peer gave other bytes: model.safetensors of model turned" in said
    assert sha256(b"turned") in said
    assert sha256(b"denrut") in said
