"""Workers bound to cards on a running cluster: given, shown, moved, released."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cluster import Cluster, until

CARD = "tests.acceptance.own_workers:CardWorker"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers with a card each; a small card is left, another is not offered."""
    running = Cluster.start(
        tmp_path_factory.mktemp("gpus"),
        [f"{CARD}=one,gpus=1", f"{CARD}=two,gpus=1"],
        CORRAL_SIMULATED_GPUS="2x24GB,2x8GB",
        CORRAL_GPU_DEVICES="0,1,2",
        CORRAL_GPU_ERROR_LIMIT="2",
    )
    running.serving("one")
    running.serving("two")
    yield running
    running.stop()


def cards(cluster: Cluster) -> list[dict[str, Any]]:
    told = json.loads(cluster.corral("gpu", "list", "--json").out)
    return [card for card in told if card["is_simulated"]]


def card_of(cluster: Cluster, job_type: str) -> str | None:
    """The card of the worker that serves a job type, once it does."""
    for worker in cluster.client.workers():
        if job_type in worker.job_types and worker.status == "online":
            return next((str(card["id"]) for card in worker.gpu_info), None)
    return None


def offered_mb(cluster: Cluster, gpu_id: str) -> float:
    (node,) = cluster.client.nodes()
    (card,) = [card for card in node.gpus if card["id"] == gpu_id]
    return float(card["memory_offered_mb"])


def ask(cluster: Cluster, job_type: str, **more: Any) -> dict[str, Any]:
    answer = cluster.client.run(job_type, {}, timeout=60, **more)
    assert isinstance(answer, dict)
    return answer


@pytest.mark.spec("A9", "B16", "B19")
def test_gpus_of_a_node_are_listed_and_only_chosen_ones_offered(
    cluster: Cluster,
) -> None:
    found = cards(cluster)
    sizes = [(card["memory_total_mb"], card["is_offered"]) for card in found]
    small = [(8192.0, True), (8192.0, False)]
    assert sizes == [(24576.0, True), (24576.0, True), *small]
    assert len({card["id"] for card in found}) == 4
    assert "3 simulated, 50/56 GB offered" in cluster.corral("nodes").out


@pytest.mark.spec("B1", "B4", "C10", "B9", "E10")
def test_two_workers_have_a_card_each_and_see_no_other(cluster: Cluster) -> None:
    mine = {job_type: card_of(cluster, job_type) for job_type in ("one", "two")}
    assert None not in mine.values()
    assert len(set(mine.values())) == 2
    assert {name: ask(cluster, name)["cards"] for name in mine} == mine
    big, also_big, small, _ = cards(cluster)
    assert {big["id"], also_big["id"]} == set(mine.values())
    assert (small["worker_id"], small["memory_offered_mb"]) == (None, 8192 * 0.9)
    assert "gpu:2" in cluster.corral("gpu", "list").out


def test_a_model_that_loads_lowers_what_is_offered_of_its_card(
    cluster: Cluster,
) -> None:
    card = card_of(cluster, "two")
    assert card is not None
    before = offered_mb(cluster, card)
    ask(cluster, "two", model_name="big")
    until("it is told", lambda: offered_mb(cluster, card) == before - 4096.0)


def test_a_worker_without_a_free_card_says_why_for_each(cluster: Cluster) -> None:
    asked = ("worker", "launch", CARD, "--job-type", "more", "--gpus", "2")
    worker_id = cluster.corral(*asked).out.strip()
    error = until("it is refused", lambda: cluster.client.worker(worker_id).error)
    assert "gpu:3 (Simulated GPU 8 GB) is not offered" in error
    assert error.startswith("no 2 GPUs of one vendor are free: gpu:0 (Simulated")
    assert error.count("is held by worker") == 2
    assert "gpu:2 (Simulated GPU 8 GB) is free" in error
    assert cluster.client.worker(worker_id).status == "error"
    cluster.client.stop_worker(worker_id)


@pytest.mark.spec("C12")
def test_a_sick_card_is_left_and_its_task_runs_on_another(
    cluster: Cluster, tmp_path: Path
) -> None:
    first = card_of(cluster, "one")
    assert first is not None
    go_on = tmp_path / "go on"
    waiting = cluster.client.submit("one", {"until": str(go_on)})
    client = cluster.client
    until("it runs", lambda: client.get_task(waiting).status == "running")
    (folder,) = (cluster.home / "agents").glob("*/simulated")
    (folder / f"{first}.errors").write_text('{"xid_79": 2}', encoding="utf-8")
    moved = until("it moved", lambda: _other(card_of(cluster, "one"), first))
    go_on.touch()
    answer = client.result(waiting, timeout=60)
    assert (answer["cards"], answer["attempt"] > 1) == (moved, True)
    assert client.get_task(waiting).losses == 0
    (sick,) = [card for card in cards(cluster) if card["quarantine"]]
    assert (sick["id"], sick["quarantine"]["reason"]) == (first, "Xid 79, 2 in all")
    assert sick["memory_offered_mb"] == 0.0
    done = cluster.corral("gpu", "release", first)
    assert done.out == f"released {first}\n"
    until("it is offered", lambda: offered_mb(cluster, first) > 0)
    kinds = {event.event_type for event in client.events(limit=1000).events}
    assert {"gpu_quarantined", "gpu_recovered"} <= kinds


def _other(card: str | None, first: str) -> str | None:
    return card if card != first else None
