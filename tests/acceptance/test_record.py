"""A real cluster's decisions, written down, made again, and tried on other workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.acceptance.cluster import Cluster


def test_a_cluster_is_recorded_replayed_and_simulated(
    shared: Cluster, tmp_path: Path
) -> None:
    tasks: list[dict[str, Any]] = [
        {"task_type": "sleep", "parameters": {"seconds": 0.05 * (n % 3)}}
        for n in range(30)
    ]
    tasks += [
        {"task_type": "echo", "parameters": {"n": n}, "priority": n % 5}
        for n in range(300)
    ]
    ids = [task_id for task_id in shared.client.submit_batch(tasks).task_ids if task_id]
    shared.client.wait_many(ids, timeout=60)
    file = str(tmp_path / "journal.jsonl.gz")
    assert "lines" in shared.corral("record", "--since", "1h", file).err
    checked = shared.corral("simulate", "--journal", file, "--check")
    assert checked.out.startswith("the same decisions, bit for bit: ")
    said = shared.corral(
        *("simulate", "--journal", file, "--add", "1x24GB", "--load", "2", "--json")
    )
    now, changed = json.loads(said.out)
    assert now["tasks"] >= 330
    assert (now["left"], now["doubled"], changed["left"]) == (0, 0, 0)
    assert changed["workers"] == now["workers"] + 1
    # Without a file: what the cluster did lately.
    assert "smith" in shared.corral("simulate").out
