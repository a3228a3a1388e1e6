"""Models on a running cluster: swapped on a small card, shown, kept, dropped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from corral.wire.workers import WorkerInfo
from corral.worker.runner.gpu_memory import hold
from tests.acceptance.cluster import Cluster, until

SLEEP = "corral.worker.builtin:SleepWorker"
SIZES = {"small": 1000.0, "one": 4000.0, "two": 4000.0}
PARAMS = {"models": {n: {"size_mb": mb, "load_s": 0.05} for n, mb in SIZES.items()}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One card of 8 GB, of which models may take 6.4."""
    running = Cluster.start(
        tmp_path_factory.mktemp("models"),
        ["corral.worker.builtin:EchoWorker=echo"],
        CORRAL_SIMULATED_GPUS="1x8GB",
    )
    running.client.launch_worker(
        SLEEP, name="card", job_types=["draw"], params=PARAMS, gpus=1
    )
    running.serving("draw")
    yield running
    running.stop()


def drawer(cluster: Cluster) -> WorkerInfo:
    (found,) = [w for w in cluster.client.workers() if "draw" in w.job_types]
    return found


def used_mb(cluster: Cluster) -> float:
    (node,) = cluster.client.nodes()
    (card,) = [card for card in node.gpus if card["is_simulated"]]
    return float(card["memory_used_mb"])


def holds(cluster: Cluster, *names: str) -> bool:
    """Does the worker say so, and does its card show it?"""
    is_told = drawer(cluster).loaded_models == sorted(names)
    return is_told and used_mb(cluster) == sum(SIZES[name] for name in names)


def draw(cluster: Cluster, model: str) -> Any:
    return cluster.client.run("draw", {"seconds": 0}, model_name=model, timeout=60)


@pytest.mark.spec("C27", "C29")
def test_two_models_take_turns_on_a_card_too_small_for_both(cluster: Cluster) -> None:
    draw(cluster, "one")
    until("the first is there", lambda: holds(cluster, "one"))
    draw(cluster, "small")
    until("both fit", lambda: holds(cluster, "one", "small"))
    draw(cluster, "two")
    until("it took the room", lambda: "two" in drawer(cluster).loaded_models)
    until("one had to go", lambda: "one" not in drawer(cluster).loaded_models)
    until("memory follows", lambda: used_mb(cluster) <= 0.8 * 8192)
    loads = drawer(cluster).performance_metrics["model_loads"]
    draw(cluster, "two")
    assert drawer(cluster).performance_metrics["model_loads"] == loads == 3


def test_a_worker_tells_of_each_model_what_it_takes(cluster: Cluster) -> None:
    draw(cluster, "two")
    shown = cluster.client.worker(drawer(cluster).worker_id).loaded_models
    (two,) = [model for model in shown if model["name"] == "two"]
    assert two["memory_usage"] == 4000.0
    assert two["load_time"] >= 0.05
    assert two["last_used"] is not None


def test_a_pinned_model_stays_and_comes_back_after_a_restart(cluster: Cluster) -> None:
    worker_id = drawer(cluster).worker_id
    done = cluster.corral("model", "pin", "small", worker_id)
    assert done.code == 0, done.err
    until("it is loaded", lambda: "small" in drawer(cluster).loaded_models)
    for model in ("one", "two", "one"):
        draw(cluster, model)
        assert "small" in drawer(cluster).loaded_models
    cluster.client.restart_worker(worker_id)
    until("it is loaded again", lambda: holds(cluster, "small"))
    (told,) = json.loads(cluster.corral("models", "--json").out)
    (small,) = told["models"]
    assert (small["status"], small["pinned"]) == ("loaded", True)
    assert cluster.corral("model", "unload", "small").code != 0


@pytest.mark.spec("C28")
def test_models_make_room_for_what_somebody_else_takes(cluster: Cluster) -> None:
    draw(cluster, "one")
    draw(cluster, "small")
    until("both are there", lambda: holds(cluster, "one", "small"))
    (ledger,) = (cluster.home / "agents").glob("*/simulated")
    (node,) = cluster.client.nodes()
    (card,) = [card["id"] for card in node.gpus if card["is_simulated"]]
    with hold(ledger, card, 3500.0):
        until("one has gone", lambda: drawer(cluster).loaded_models == ["small"])


def test_an_unloaded_model_is_gone_from_its_card(cluster: Cluster) -> None:
    worker_id = drawer(cluster).worker_id
    cluster.client.assign_model("one", [worker_id])
    until("it is loaded", lambda: "one" in drawer(cluster).loaded_models)
    done = cluster.corral("model", "unload", "one")
    assert done.out == f"unloading one from {worker_id}\n"
    done = cluster.corral("model", "unload", "small", "--force")
    assert done.out == f"unloading small from {worker_id}\n"
    until("the card is empty", lambda: holds(cluster))
    assert "No worker has a model" in cluster.corral("models").err


def test_memory_that_does_not_come_back_costs_a_restart_and_no_task(
    cluster: Cluster,
) -> None:
    client = cluster.client
    client.launch_worker(
        "tests.unit.worker.sample_workers:Leaky", name="leak", job_types=["leak"]
    )
    cluster.serving("leak")
    assert client.run("leak", {}, model_name="leaky", timeout=60) == ["leaky"]
    client.unload_model("leaky")
    assert client.run("leak", {}, model_name="sound", timeout=60) == ["sound"]
    (event,) = until(
        "it is noticed",
        lambda: client.events(event_type="memory_not_freed").events,
    )
    assert (event.data["model"], event.data["size_mb"]) == ("leaky", 150.0)
    assert event.data["left_mb"] == pytest.approx(150, abs=30)
    assert client.run("leak", {}, model_name="sound", timeout=60) == ["sound"]
    (worker,) = [w for w in client.workers() if "leak" in w.job_types]
    until("it is well", lambda: client.worker(worker.worker_id).status == "online")
