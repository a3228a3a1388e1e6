"""Strategies on running clusters: the one a manager is told is the one it follows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.cluster import Cluster, until

PARAMS = {"models": {n: {"size_mb": 4000, "load_s": 0.01} for n in ("one", "two")}}


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Two workers, each with a card that has room for both models."""
    running = Cluster.start(
        tmp_path / "home",
        ["corral.worker.builtin:EchoWorker=echo"],
        CORRAL_SIMULATED_GPUS="2x16GB",
        CORRAL_STRATEGY=request.param,
        CORRAL_EVICTION="lru",
    )
    running.client.launch_worker(
        "corral.worker.builtin:SleepWorker",
        name="card",
        job_types=["draw"],
        params=PARAMS,
        gpus=1,
        count=2,
    )
    running.serving("draw", 2)
    # Before its node has told which card it has, a worker has no room for a model.
    until("both have a card", lambda: cards(running) == [1, 1], 60)
    yield running
    running.stop()


def cards(cluster: Cluster) -> list[int]:
    workers = cluster.client.workers()
    return [len(w.gpu_info) for w in workers if "draw" in w.job_types]


def went_to(cluster: Cluster, model: str) -> str:
    """Where one more task was run, to its end."""
    task_id = cluster.client.submit("draw", {"seconds": 0}, model_name=model)
    done = cluster.client.wait(task_id, timeout=60)
    assert done.is_completed
    assert done.worker_id is not None
    return done.worker_id


@pytest.mark.spec("C18")
@pytest.mark.parametrize("cluster", ["weighted_round_robin"], indirect=True)
def test_round_robin_takes_workers_in_turn_whatever_they_have(cluster: Cluster) -> None:
    first, second, *rest = (went_to(cluster, "one") for _ in range(6))
    assert first != second
    assert rest == [first, second] * 2
    told = cluster.corral("config")
    assert "weighted_round_robin" in told.out


@pytest.mark.spec("C18", "C20", "C21")
@pytest.mark.parametrize("cluster", ["smith"], indirect=True)
def test_smith_sends_tasks_where_their_model_is_and_past_who_is_busy(
    cluster: Cluster,
) -> None:
    client = cluster.client
    home = went_to(cluster, "one")
    assert [went_to(cluster, "one") for _ in range(4)] == [home] * 4
    long = client.submit("draw", {"seconds": 600}, model_name="one", timeout=900)
    until("it runs", lambda: client.get_task(long).status == "running", 60)
    assert client.get_task(long).worker_id == home
    other = went_to(cluster, "two")
    assert other != home
    client.cancel(long)
    until("it is over", lambda: client.get_task(long).is_terminal, 60)
    assert [went_to(cluster, m) for m in ("two", "one")] == [other, home]


@pytest.mark.spec("C18")
def test_a_short_task_sent_after_a_long_one_is_done_by_whoever_is_free(
    tmp_path: Path,
) -> None:
    cluster = Cluster.start(
        tmp_path / "home", ["corral.worker.builtin:SleepWorker=nap"]
    )
    client = cluster.client
    try:
        # Now such tasks are known to be so short that they are sent ahead.
        ids = client.submit_many([("nap", {"seconds": 0})] * 50)
        client.wait_many(ids, timeout=60)
        long = client.submit("nap", {"seconds": 600}, timeout=900)
        until("it runs", lambda: client.get_task(long).status == "running", 60)
        short = client.submit("nap", {"seconds": 0})
        client.launch_worker(
            "corral.worker.builtin:SleepWorker", name="next", job_types=["nap"]
        )
        done = client.wait(short, timeout=60)
        assert done.is_completed
        assert done.worker_id != client.get_task(long).worker_id
    finally:
        cluster.stop()
