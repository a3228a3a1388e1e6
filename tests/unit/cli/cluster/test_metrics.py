"""`corral metrics`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from corral.cli.cluster.metrics import spark
from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import StandIn, fault


def series(*average: float | None, full_at: str | None = None) -> dict[str, Any]:
    trend = {"per_hour": None, "full_at": full_at}
    return {"average": average, "maximum": average, "trend": trend}


NODE = {
    "node_id": "n1",
    "from": "2026-01-01T00:00:00Z",
    "to": "2026-01-01T01:00:00Z",
    "step_s": 300,
    "times": [],
    "series": {
        "cpu_percent": series(0.0, None, None, 50.0, 100.0),
        "disk_percent": series(80.0, 90.0, full_at="2020-01-01T00:00:00Z"),
        "network_rx_bytes_s": series(0.0, 2_000_000.0),
        "load_1m": series(None, None),
    },
    "gpus": [
        {
            "id": "GPU-1",
            "index": 0,
            "name": "H200\x1b[31m",
            "series": {"memory_used_mb": series(1024.0, 2048.0)},
        }
    ],
}
CLUSTER = {
    "timeframe": "24h",
    "from": "2026-01-01T00:00:00Z",
    "to": "2026-01-02T00:00:00Z",
    "step_s": 300,
    "metrics": {
        "total_tasks": 40,
        "failed_tasks": 10,
        "success_rate": 0.75,
        "average_response_time": 2.5,
        "peak_throughput": 8.0,
    },
    "series": {"cpu_percent": series(25.0)},
}


def test_a_node_is_shown_as_plots_with_figures(
    manager: StandIn, corral: Corral
) -> None:
    manager.on(
        "GET /nodes",
        {"nodes": [{"node_id": "n1", "status": "online", "hostname": "box"}]},
    )
    manager.on("GET /nodes/n1/metrics", NODE)
    ran = corral("metrics", "box", "--since", "1h")
    assert ran.code == 0
    assert manager.asked("GET /nodes/n1/metrics")[0].query == {"from": "-1h"}
    rows = {line.split()[0]: line for line in ran.out.splitlines() if line.strip()}
    assert "▁··▅█" in rows["CPU"]
    assert "100 %" in rows["CPU"]
    assert rows["disk"].endswith("full")
    assert "2 MB/s" in rows["received"]
    assert "load" not in rows
    assert "2 GiB" in rows["memory"]
    assert "H200 [31m (GPU-1)" in ran.out
    assert "steps of 5 min" in ran.out


def test_the_cluster_is_shown_without_a_node(manager: StandIn, corral: Corral) -> None:
    manager.on("GET /cluster/metrics", CLUSTER)
    ran = corral("metrics", "--since", "24h")
    assert "40 ended, 10 failed" in ran.out
    assert "75 %" in ran.out
    assert "8 tasks a minute" in ran.out
    assert manager.seen[0].query == {"timeframe": "24h"}


def test_json_is_what_the_manager_said(manager: StandIn, corral: Corral) -> None:
    manager.on("GET /nodes", {"nodes": []})
    manager.on("GET /nodes/n1/metrics", NODE)
    manager.on("GET /cluster/metrics", CLUSTER)
    told = json.loads(corral("metrics", "n1", "--json").out)
    assert told["series"]["cpu_percent"]["average"] == [0.0, None, None, 50.0, 100.0]
    assert json.loads(corral("metrics", "--json").out)["metrics"]["total_tasks"] == 40


def test_mistakes_end_with_one_line_and_exit_code_1(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("GET /nodes", {"nodes": []})
    manager.on("GET /nodes/n2/metrics", fault("node_not_found", 404, "no node 'n2'"))
    manager.on("GET /cluster/metrics", fault("invalid_field", 422, "timeframe must be"))
    for ran in (corral("metrics", "n2"), corral("metrics", "--since", "2h")):
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith("Error: ")


def test_no_readings_is_said(manager: StandIn, corral: Corral) -> None:
    manager.on("GET /nodes", {"nodes": []})
    manager.on("GET /nodes/n1/metrics", {"node_id": "n1"})
    assert "No readings" in corral("metrics", "n1").err


@pytest.mark.parametrize(
    ("values", "top", "width", "drawn"),
    [
        ([0.0, 50.0, 100.0], 100.0, 10, "▁▅█"),
        ([0.0, 100.0, None, None], 100.0, 2, "▅·"),
        ([0.0, 0.0], 0.0, 5, "▁▁"),
        ([], 1.0, 5, ""),
        ([-5.0, 500.0], 100.0, 5, "▁█"),
    ],
)
def test_a_spark_line_keeps_its_scale_and_its_gaps(
    values: list[float | None], top: float, width: int, drawn: str
) -> None:
    assert spark(values, top, width) == drawn
