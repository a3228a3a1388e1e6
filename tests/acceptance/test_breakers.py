"""Worker classes that cannot start, on real nodes: left alone, tried, repaired."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cluster import ECHO, Cluster, clean_environment, until

WELL = """
from corral.worker import Worker

class Detector(Worker):
    def run(self, payload):
        return "found"
"""
RAISES = "raise RuntimeError('the weights are missing')\n"
EXITS = WELL + "    def start(self):\n        import os; os._exit(41)\n"


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that workers import from."""
    return tmp_path_factory.mktemp("code")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, code: Path) -> Iterator[Cluster]:
    path = os.pathsep.join((str(code), clean_environment()["PYTHONPATH"]))
    started = Cluster.start(
        tmp_path_factory.mktemp("breakers"),
        [ECHO],
        PYTHONPATH=path,
        CORRAL_BEAT_S="0.5",
        CORRAL_BREAKER_FAILURES="2",
        CORRAL_BREAKER_WINDOW_S="60",
        CORRAL_BREAKER_COOLDOWN_S="2",
    )
    try:
        yield started
    finally:
        started.stop()


def events(cluster: Cluster, key: str) -> list[tuple[str, str]]:
    rows = cluster.client.events(limit=1000).events
    return [
        (e.event_type, str(e.severity))
        for e in rows
        if e.event_type.startswith("breaker_") and key in (e.title or "")
    ]


def breakers(cluster: Cluster, node_id: str) -> list[dict[str, Any]]:
    return cluster.client.node(node_id).breakers


@pytest.mark.spec("C50")
@pytest.mark.parametrize(
    ("module", "broken", "words"),
    [
        ("raises_at_import", RAISES, "the weights are missing"),
        ("exits_at_start", EXITS, "exited with code 41"),
    ],
    ids=("raises", "exits"),
)
def test_a_class_that_cannot_start_is_left_alone_and_tried_until_it_is_repaired(
    cluster: Cluster, code: Path, module: str, broken: str, words: str
) -> None:
    client, file = cluster.client, code / f"{module}.py"
    file.write_text(broken)
    key = f"{module}:Detector"
    worker = client.launch_worker(key, job_types=[module])[0]
    task_id = client.submit(module, {}).task_id

    def why() -> str:
        waiting = client.get_task(task_id).waiting
        is_open = waiting is not None and waiting.reason == "breaker_open"
        return waiting.message if waiting is not None and is_open else ""

    message = until("its task waits for the breaker", why)
    assert words in message

    def is_given_up() -> bool:
        told = client.worker(worker.worker_id)
        return told.status == "error" and "breaker " in (told.error or "")

    # While it is tried once more, every two seconds, none of this is so.
    until("its worker is given up", is_given_up)
    until("its task says why", lambda: words in cluster.corral("task", task_id).out)
    until("it is listed", lambda: key in cluster.corral("breaker", "list").out)
    assert client.run("echo", {"message": "other workers go on"})
    file.write_text(WELL)
    assert client.result(task_id, timeout=60) == "found"
    until("the breaker is closed", lambda: not breakers(cluster, worker.node_id or ""))
    until("both are events", lambda: len(events(cluster, key)) == 2)
    told_of = set(events(cluster, key))
    assert told_of == {("breaker_opened", "warning"), ("breaker_closed", "info")}
    client.stop_worker(worker.worker_id)


def test_a_reset_starts_it_at_once_however_long_the_cool_down_is(
    cluster: Cluster, code: Path
) -> None:
    client, file = cluster.client, code / "patient.py"
    file.write_text(RAISES)
    settings = ("CORRAL_BREAKER_FAILURES=1", "CORRAL_BREAKER_COOLDOWN_S=3600")
    path = f"PYTHONPATH={cluster.environment['PYTHONPATH']}"
    cluster.join("patient", ["patient:Detector=look"], "env", path, *settings)
    node = until(
        "the node has opened its breaker",
        lambda: [n for n in client.nodes() if n.hostname == "patient" and n.breakers],
    )[0]
    (breaker,) = node.breakers
    assert (breaker["key"], breaker["failures"]) == ("patient:Detector", 1)
    assert breaker["next_probe_s"] > 3000
    task_id = client.submit("look", {}).task_id
    file.write_text(WELL)
    done = cluster.corral("breaker", "reset", node.node_id, "patient:Detector")
    assert done.out == "reset patient:Detector\n", done.err
    assert client.result(task_id, timeout=60) == "found"
    until("it is closed", lambda: not breakers(cluster, node.node_id))
    assert json.loads(cluster.corral("breaker", "list", "--json").out) == []
