"""Models that move, and models that are there in time, on a running cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.acceptance.cluster import Cluster, until

SLEEP = "corral.worker.builtin:SleepWorker"
SIZE = {"size_mb": 4000.0, "load_s": 0.2}
PERIOD_S, ROUNDS, LEARNED = 1.6, 7, 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers that hold two models at most, and one with a card of 8 GB."""
    running = Cluster.start(
        tmp_path_factory.mktemp("rebalance"),
        [f"{SLEEP}=paint"],
        CORRAL_SIMULATED_GPUS="1x8GB",
        CORRAL_MODEL_CACHE_SIZE="2",
        CORRAL_PREFETCH="pattern",
    )
    try:
        params = {"models": {"day": SIZE, "night": SIZE}}
        launch = running.client.launch_worker
        launch(SLEEP, name="card", job_types=["draw"], params=params, gpus=1)
        launch(SLEEP, name="other", job_types=["paint"])
        running.serving("draw")
        running.serving("paint", 2)
        yield running
    finally:
        running.stop()


def held(cluster: Cluster, job_type: str) -> dict[str, list[str]]:
    workers = cluster.client.workers()
    found = [w for w in workers if job_type in w.job_types]
    return {w.worker_id: sorted(map(str, w.loaded_models)) for w in found}


@pytest.mark.spec("C26")
def test_a_model_moves_from_a_full_worker_to_an_empty_one(cluster: Cluster) -> None:
    full, empty = sorted(held(cluster, "paint"))
    for model in ("oil", "ink"):
        cluster.client.assign_model(model, [full])
    both = ["ink", "oil"]
    until("both are there", lambda: held(cluster, "paint")[full] == both, 60)
    told = json.loads(cluster.corral("rebalance", "--dry-run", "--json").out)
    (move,) = told["operations"]
    assert (move["from_worker"], move["to_worker"]) == (full, empty)
    assert held(cluster, "paint")[empty] == []
    done = cluster.corral("rebalance")
    assert done.code == 0, done.err
    assert move["model"] in done.out
    (kept,) = set(both) - {move["model"]}
    even = {full: [kept], empty: [move["model"]]}
    until("each has one", lambda: held(cluster, "paint") == even, 60)
    kinds = {event.event_type for event in cluster.client.events().events}
    assert "cluster_rebalance_started" in kinds


@pytest.mark.spec("C57")
def test_in_a_rhythm_models_are_loaded_before_their_tasks_come(
    cluster: Cluster,
) -> None:
    """Two models take turns on a card that holds one: each turn needs a load."""
    tasks = [
        {
            "task_type": "draw",
            "parameters": {"seconds": 0},
            "model_name": model,
            "run_after": PERIOD_S * turn + later,
        }
        for turn in range(ROUNDS)
        for model, later in (("day", 0.0), ("night", PERIOD_S / 2))
    ]
    ids = cluster.client.submit_many(tasks)
    cluster.client.wait_many(ids, timeout=120)
    is_cold = [_loads(cluster, task_id) for task_id in ids]
    first, rest = is_cold[: 2 * LEARNED], is_cold[2 * LEARNED :]
    # What waits for its load while there is no rhythm yet no longer does later.
    assert 2 * sum(rest) <= sum(first), is_cold


def _loads(cluster: Cluster, task_id: str) -> bool:
    """Did this task have its model loaded first?"""
    placed = cluster.client.explain(task_id).placement
    assert placed is not None
    return placed.load is not None
