"""Order on a running cluster: limits, pauses, and room made for critical tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from corral.client import Client, TaskDetail
from tests.acceptance.cluster import SLEEP, Cluster, until

GATHER = "tests.acceptance.own_workers:GatherWorker"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("order")
    running = Cluster.start(home, [f"{SLEEP}x3"], CORRAL_PREEMPTION="true")
    running.serving("sleep")
    yield running
    running.stop()


def most_at_once(tasks: list[TaskDetail]) -> int:
    """How many of them ran at the same time."""
    assert all(t.started_at and t.completed_at for t in tasks)
    begins = [(t.started_at, 1) for t in tasks if t.started_at]
    ends = [(t.completed_at, -1) for t in tasks if t.completed_at]
    count = most = 0
    for _, change in sorted([*begins, *ends], key=lambda step: (step[0], step[1])):
        count += change
        most = max(most, count)
    return most


def details(client: Client, label: str) -> list[TaskDetail]:
    return [client.get_task(t.task_id) for t in client.list_tasks(label=label)]


def test_an_array_with_a_limit_runs_so_many_at_once(cluster: Cluster) -> None:
    made = cluster.corral("submit", "sleep", '{"seconds": 0.2}', "--array", "0-5%2")
    assert made.code == 0, made
    array_id = made.out.strip()
    assert cluster.corral("wait", "--array", array_id).code == 0
    tasks = details(cluster.client, f"array:{array_id}")
    assert len(tasks) == 6
    assert most_at_once(tasks) == 2, "though there are three workers"


def test_a_paused_type_and_a_quota_hold_tasks_back(cluster: Cluster) -> None:
    client = cluster.client
    assert cluster.corral("job-type", "pause", "sleep").code == 0
    assert cluster.corral("share", "set", "team=a", "--max-running", "1").code == 0
    ids = client.submit_many(
        [
            {
                "task_type": "sleep",
                "parameters": {"seconds": 0.2},
                "labels": {"team": t},
            }
            for t in ("a", "a", "a", "b")
        ]
    )
    waiting = client.get_task(ids[0]).waiting
    assert waiting is not None
    assert waiting.reason == "type_paused"
    assert cluster.corral("job-type", "resume", "sleep").code == 0
    assert all(t.is_completed for t in client.wait_many(ids))
    assert most_at_once([client.get_task(i) for i in ids[:3]]) == 1
    assert cluster.corral("share", "remove", "team=a").code == 0


@pytest.mark.spec("C24", "C60")
def test_a_worker_that_takes_batches_gets_slow_tasks_together(
    cluster: Cluster,
) -> None:
    client = cluster.client
    client.launch_worker(GATHER, name="gather", job_types=["gather"])
    cluster.serving("gather")
    made = cluster.corral("job-type", "set", "gather", "--batch-limit", "4")
    assert made.code == 0, made
    assert cluster.corral("job-type", "pause", "gather").code == 0
    ids = client.submit_many([("gather", n) for n in range(6)])
    assert cluster.corral("job-type", "resume", "gather").code == 0
    tasks = client.wait_many(ids)
    assert [task.result for task in tasks] == [4, 4, 4, 4, 2, 2]
    assert {client.get_task(task_id).attempt for task_id in ids} == {1}


def test_a_critical_task_takes_the_place_of_a_preemptible_one(
    cluster: Cluster,
) -> None:
    client = cluster.client
    long = [
        client.submit("sleep", {"seconds": 600}, preemptible=True, timeout=900)
        for _ in range(3)
    ]
    until(
        "all are busy",
        lambda: all(client.get_task(t).status == "running" for t in long),
    )
    urgent = client.submit("sleep", {"seconds": 0.1}, priority="critical")
    assert client.wait(urgent, timeout=60).is_completed
    (stopped,) = [t for t in map(client.get_task, long) if t.attempt > 1]
    assert (stopped.tries, stopped.attempts[0].outcome) == (0, "returned")
    for task in long:
        client.cancel(task)


@pytest.mark.spec("C56")
def test_the_same_question_is_answered_from_the_cache(cluster: Cluster) -> None:
    client, asked = cluster.client, {"seconds": 0.01, "of": "cache"}
    assert cluster.corral("job-type", "set", "sleep", "--cache-ttl", "3600").code == 0
    first = client.submit("sleep", asked)
    ended = client.wait(first, timeout=60)
    again = client.submit("sleep", dict(reversed(asked.items())))
    assert (again.status, again.cached_from) == ("completed", first.task_id)
    task = client.get_task(again)
    assert (task.result, task.worker_id) == (ended.result, None)
    both = [client.submit("sleep", {"seconds": 0.3, "of": "both"}) for _ in range(2)]
    assert all(t.is_completed for t in client.wait_many(both))
    assert client.get_task(both[1]).cached_from == both[0].task_id

    def kept() -> int:
        (kind,) = [kind for kind in client.job_types() if kind.name == "sleep"]
        return kind.cache.entries if kind.cache else 0

    until("they are written", lambda: kept() == 2)
    old = cluster.kill("manager")
    until("another manager", lambda: cluster.pid("manager") not in (0, old))
    assert client.submit("sleep", asked).cached_from == first.task_id
    assert "100% hits" in cluster.corral("job-type", "list").out
    cluster.serving("sleep")
    ran = cluster.corral("run", "sleep", json.dumps(asked), "--no-cache", "--json")
    assert ran.code == 0, ran
    anew = json.loads(ran.out)
    assert anew["worker_id"]
    assert anew["cached_from"] is None
    ran = cluster.corral("job-type", "clear-cache", "sleep")
    assert ran.out == "forgot 2 results of sleep\n", ran
    assert cluster.corral("job-type", "set", "sleep", "--cache-ttl", "0").code == 0
