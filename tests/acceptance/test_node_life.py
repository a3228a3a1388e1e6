"""A real node is cordoned, drained under load, labelled, planned for, and leaves."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from corral.errors import Conflict
from corral.wire.nodes import NodeInfo
from corral.wire.tasks import TaskDetail
from tests.acceptance.cluster import CORRAL, SLEEP, Agent, Cluster, until

HERE, THERE = "local", "second"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("life")
    started = Cluster.start(home, [f"{SLEEP}x2"])
    try:
        started.join(THERE, [f"{SLEEP}x2", f"{SLEEP}x2"])
        started.serving("sleep", 3)
        yield started
    finally:
        started.stop()


@pytest.fixture(autouse=True)
def opened(cluster: Cluster) -> Iterator[None]:
    """Whatever a test did, the next one finds an open node."""
    yield
    if there(cluster).status != "left":
        cluster.client.uncordon_node(THERE)


def there(cluster: Cluster) -> NodeInfo:
    (found,) = [n for n in cluster.client.nodes() if n.hostname == THERE]
    return found


def serving(cluster: Cluster) -> list[int]:
    node_id = there(cluster).node_id
    rows = cluster.client.workers()
    is_up = ("online", "busy")
    return [w.pid or 0 for w in rows if w.node_id == node_id and w.status in is_up]


def node_of(cluster: Cluster, **options: object) -> str | None:
    task = cluster.client.submit("sleep", {"seconds": 0.01}, **options)  # type: ignore[arg-type]
    return cluster.client.wait(task, 60).node_id


def agent(cluster: Cluster) -> Agent:
    (found,) = cluster.agents
    return found


def test_a_drain_under_load_loses_and_restarts_nothing(cluster: Cluster) -> None:
    client, node_id = cluster.client, there(cluster).node_id
    supervisors = serving(cluster)
    long = client.submit_many([("sleep", {"seconds": 2})] * 6)
    ids = long + client.submit_many([("sleep", {"seconds": 0.02})] * 300)
    until("it has some", lambda: there(cluster).running_tasks >= 4)
    began = client.events(limit=1).next

    ran = cluster.corral("drain", THERE, "--reason", "update", "--timeout", "30")
    assert (ran.code, ran.out) == (0, f"{node_id} is drained\n"), ran.err

    assert serving(cluster) == []
    assert there(cluster).running_tasks == 0
    until("they end", lambda: not any(psutil.pid_exists(pid) for pid in supervisors))
    done: list[TaskDetail] = [client.wait(task_id, 60) for task_id in ids]
    assert {t.status for t in done} == {"completed"}
    assert {(t.attempt, t.losses, t.tries) for t in done} == {(1, 0, 0)}
    assert {t.node_id for t in done if t.task_id in long} >= {node_id}
    told = [e.event_type for e in client.events(after=began, limit=1000).events]
    assert "node_draining" in told
    assert "node_drained" in told


def test_a_drained_node_says_why_and_comes_back(cluster: Cluster) -> None:
    client = cluster.client
    labels = {"only": "there"}
    client.change_node(THERE, labels=labels)
    client.drain_node(THERE, reason="new cables")
    until("it is empty", lambda: there(cluster).scheduling == "drained")
    task = client.submit("sleep", {"seconds": 0.01}, node_labels=labels)
    waiting = client.get_task(task).waiting
    assert waiting is not None
    assert waiting.reason == "node_held"
    assert "new cables" in waiting.message
    assert cluster.corral("uncordon", THERE).code == 0
    assert client.wait(task, 60).node_id == there(cluster).node_id
    assert there(cluster).scheduling == "open"
    until("all are back", lambda: len(serving(cluster)) == 2)


def test_a_cordon_ends_by_itself(cluster: Cluster) -> None:
    ran = cluster.corral("cordon", THERE, "--until", "1.5", "--json")
    shown = json.loads(ran.out)
    assert (shown["scheduling"], shown["holds"][0]["source"]) == (
        "cordoned",
        "operator",
    )
    assert len(serving(cluster)) == 2
    until("it is open", lambda: there(cluster).scheduling == "open")


def test_labels_and_taints_send_tasks_to_the_right_node(cluster: Cluster) -> None:
    node_id = there(cluster).node_id
    ran = cluster.corral("label", THERE, "rack=b")
    assert "rack=b" in ran.out.splitlines()
    for _ in range(3):
        assert node_of(cluster, node_labels={"rack": "b"}) == node_id
    assert cluster.corral("taint", THERE, "spot").out == "spot\n"
    for _ in range(3):
        assert node_of(cluster) != node_id
    ran = cluster.corral(
        *("run", "sleep", '{"seconds": 0.01}', "--json"),
        *("--node-label", "rack=b", "--tolerate", "spot"),
    )
    assert ran.code == 0, ran.err
    assert cluster.corral("taint", THERE, "spot-").out == ""
    assert node_of(cluster, node_labels={"rack": "b"}) == node_id


def test_a_window_begins_and_ends_by_the_clock(cluster: Cluster) -> None:
    ran = cluster.corral("window", "add", THERE, "soon", "--at", "1", "--for", "5")
    assert ran.out == "soon\n", ran.err
    held = until("it begins", lambda: there(cluster).holds)
    assert held[0].source == "window"
    assert held[0].until == there(cluster).holds[0].until
    until("its workers rest", lambda: serving(cluster) == [])
    until("it ends", lambda: there(cluster).scheduling == "open")
    assert cluster.client.windows(THERE) == []
    until("they are back", lambda: len(serving(cluster)) == 2)


def test_a_machine_leaves_and_forgets_who_it_was(cluster: Cluster) -> None:
    task = cluster.client.submit("sleep", {"seconds": 4}, node_labels={"rack": "b"})
    until("it runs", lambda: cluster.client.get_task(task).state == "running")
    with pytest.raises(Conflict, match="1 task"):
        cluster.client.remove_node(THERE)
    assert cluster.client.wait(task, 60).is_completed
    home = agent(cluster).home
    assert _leave(home).stdout == "left\n"
    assert agent(cluster).process.wait(60) == 0
    until("it is gone", lambda: there(cluster).status == "left")
    assert not list((home / "agents").glob("*/credential.json"))
    workers = cluster.client.workers()
    assert there(cluster).node_id not in {w.node_id for w in workers}
    assert THERE not in cluster.corral("nodes").out
    again = _leave(home)
    assert (again.returncode, again.stdout) == (1, "")


def _leave(home: Path) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("CORRAL_")}
    return subprocess.run(
        [*CORRAL, "leave"],
        env={**kept, "CORRAL_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
