"""A real cluster's decisions, written down, made again, and tried on other workers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cluster import ECHO, SLEEP, Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """One of its own: what others left waiting would wait in the simulation, too."""
    started = Cluster.start(tmp_path / "home", [ECHO, f"{SLEEP}x2"])
    try:
        started.serving("echo")
        started.serving("sleep")
        yield started
    finally:
        started.stop()


def test_a_cluster_is_recorded_replayed_and_simulated(
    cluster: Cluster, tmp_path: Path
) -> None:
    tasks: list[dict[str, Any]] = [
        {"task_type": "sleep", "parameters": {"seconds": 0.05 * (n % 3)}}
        for n in range(30)
    ]
    tasks += [
        {"task_type": "echo", "parameters": {"n": n}, "priority": n % 5}
        for n in range(300)
    ]
    ids = [
        task_id for task_id in cluster.client.submit_batch(tasks).task_ids if task_id
    ]
    cluster.client.wait_many(ids, timeout=60)
    file = str(tmp_path / "journal.jsonl.gz")
    assert "lines" in cluster.corral("record", "--since", "1h", file).err
    checked = cluster.corral("simulate", "--journal", file, "--check")
    assert checked.out.startswith("the same decisions, bit for bit: ")
    said = cluster.corral(
        *("simulate", "--journal", file, "--add", "1x24GB", "--load", "2", "--json")
    )
    now, changed = json.loads(said.out)
    assert now["tasks"] >= 330
    assert (now["left"], now["doubled"], changed["left"]) == (0, 0, 0)
    assert changed["workers"] == now["workers"] + 1
    # Without a file: what the cluster did lately.
    assert "smith" in cluster.corral("simulate").out
