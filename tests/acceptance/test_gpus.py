"""A cluster with GPUs that are made up: what `corral nodes` shows of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cluster import CORRAL, ECHO, Cluster, until


@pytest.mark.spec("A9")
def test_gpus_of_a_node_are_listed_with_their_memory(tmp_path: Path) -> None:
    cluster = Cluster.start(
        tmp_path,
        [ECHO],
        CORRAL_SIMULATED_GPUS="2x24GB,1x8GB",
        CORRAL_GPU_DEVICES="0,2",
    )
    try:
        found = until("GPUs are told", lambda: simulated(nodes(cluster, "--json")))
        sizes = [(gpu["memory_total_mb"], gpu["is_offered"]) for gpu in found]
        assert sizes == [(24576.0, True), (24576.0, False), (8192.0, True)]
        assert len({gpu["id"] for gpu in found}) == 3
        assert "2 simulated, 32/32 GB free" in nodes(cluster)
    finally:
        cluster.stop()


def nodes(cluster: Cluster, *options: str) -> str:
    said = subprocess.run(
        [*CORRAL, "--url", cluster.url, "nodes", *options],
        env=cluster.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return said.stdout


def simulated(listed: str) -> list[dict[str, Any]]:
    rows = json.loads(listed)
    return [gpu for row in rows for gpu in row["gpus"] if gpu["is_simulated"]]
