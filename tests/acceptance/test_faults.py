"""kill -9 of every part while 500 tasks are in flight: nothing is lost or doubled."""

from __future__ import annotations

import os
import random
import signal
import statistics
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.acceptance.cluster import SLEEP, Agent, Cluster, took_s, until
from tests.acceptance.history import check_exactly_once

TASKS = 500
SLOTS = 8


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home: Path = tmp_path_factory.mktemp("faults")
    started = Cluster.start(home, [f"{SLEEP}x{SLOTS}"])
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def second(cluster: Cluster) -> Agent:
    agent = cluster.join("second", [f"{SLEEP}x{SLOTS}"])
    cluster.serving("sleep", 2)
    return agent


def submit(cluster: Cluster, count: int = TASKS) -> list[str]:
    dice = random.Random(count)
    return cluster.client.submit_many(
        [("sleep", {"seconds": dice.uniform(0.05, 0.3)}) for _ in range(count)]
    )


def under_way(cluster: Cluster, ids: list[str], done: int = 60) -> None:
    """Wait until the work is well in flight."""

    def is_moving() -> bool:
        return len(cluster.client.collect(ids[: 2 * done]).tasks) >= done

    until("the first tasks are done", is_moving)


@pytest.mark.timeout(240)
@pytest.mark.spec("C25")
def test_nothing_is_lost_when_a_runner_is_killed(
    cluster: Cluster, second: Agent
) -> None:
    ids = submit(cluster)
    under_way(cluster, ids)
    supervisor = cluster.worker_pids("sleep")[0]
    os.kill(cluster.runner_pids(supervisor)[0], signal.SIGKILL)
    check_exactly_once(cluster.client, ids)
    assert supervisor in cluster.worker_pids("sleep")


@pytest.mark.timeout(240)
@pytest.mark.spec("C12")
def test_nothing_is_lost_when_a_supervisor_is_killed(
    cluster: Cluster, second: Agent
) -> None:
    ids = submit(cluster)
    under_way(cluster, ids)

    def kill_one() -> None:
        victim = cluster.worker_pids("sleep")[0]
        os.kill(victim, signal.SIGKILL)
        until("the agent notices", lambda: victim not in cluster.worker_pids("sleep"))

    seconds = [took_s(kill_one)]
    check_exactly_once(cluster.client, ids)
    cluster.serving("sleep", 2)
    for _ in range(2):
        seconds.append(took_s(kill_one))
        cluster.serving("sleep", 2)
    assert statistics.median(seconds) < 2.0


@pytest.mark.timeout(240)
def test_nothing_is_lost_when_the_manager_is_killed(
    cluster: Cluster, second: Agent
) -> None:
    ids = submit(cluster)
    under_way(cluster, ids)
    workers = set(cluster.worker_pids("sleep"))
    dead = cluster.kill("manager")
    until("a new manager", lambda: cluster.pid("manager") not in (0, dead))
    check_exactly_once(cluster.client, ids)
    assert workers <= {p.pid for p in psutil.process_iter()}


@pytest.mark.timeout(240)
@pytest.mark.spec("C51")
def test_nothing_is_lost_when_redis_is_wiped_and_killed(
    cluster: Cluster, second: Agent
) -> None:
    import redis

    ids = submit(cluster)
    under_way(cluster, ids)
    where = (cluster.home / "engine.url").read_text().strip()
    url = where.replace("redis+socket://", "unix://").replace("virtual_host", "db")
    with redis.Redis.from_url(url) as server:
        server.flushall()
    dead = cluster.kill("redis")
    until("a new Redis", lambda: cluster.pid("redis") not in (0, dead))
    check_exactly_once(cluster.client, ids)


@pytest.mark.timeout(240)
def test_nothing_is_lost_when_postgresql_is_killed(
    cluster: Cluster, second: Agent
) -> None:
    ids = submit(cluster)
    under_way(cluster, ids)
    cluster.kill_with_family("postgres")
    check_exactly_once(cluster.client, ids)


@pytest.mark.timeout(240)
@pytest.mark.spec("C47", "C48")
def test_tasks_of_a_dead_node_run_elsewhere(cluster: Cluster, second: Agent) -> None:
    ids = submit(cluster)
    under_way(cluster, ids)
    node = next(n for n in cluster.client.nodes() if n.hostname == "second")
    assert any(w.node_id == node.node_id for w in cluster.client.workers())
    second.kill_all()
    until(
        "the node is seen as lost",
        lambda: cluster.client.node(node.node_id).status == "offline",
    )
    # What happened is written a moment after it is known.
    (lost,) = until(
        "the loss is an event",
        lambda: cluster.client.events(event_type="node_lost", limit=1).events,
    )
    heard = cluster.client.node(node.node_id).last_heartbeat
    assert heard is not None
    assert lost.at is not None
    assert (lost.at - heard).total_seconds() < 22.0
    check_exactly_once(cluster.client, ids)
