"""The calls about figures over time."""

from __future__ import annotations

from datetime import UTC, datetime

from corral.client import Client
from tests.unit.client.stand_in import StandIn

SERIES = {
    "average": [1.0, None],
    "maximum": [2.0, None],
    "trend": {"per_hour": 0.5, "full_at": "2026-01-02T00:00:00Z"},
}
NODE = {
    "node_id": "n1",
    "from": "2026-01-01T00:00:00Z",
    "to": "2026-01-01T00:10:00Z",
    "step_s": 300,
    "times": ["2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"],
    "series": {"disk_percent": SERIES},
    "gpus": [{"id": "GPU-1", "series": {"power_w": SERIES}, "new": 1}],
}
CLUSTER = {
    "timeframe": "7d",
    "metrics": {"total_tasks": 4, "gpu_utilization": {"average": 60.0}},
    "series": {"cpu_percent": {"average": [None], "maximum": [3.0]}},
    "nodes": [None],
}


def test_a_node_s_figures_are_asked_for_by_time_and_typed(
    manager: StandIn, client: Client
) -> None:
    manager.on("GET /nodes/n1/metrics", NODE)
    found = client.node_metrics("n1", since="-10m", until=1767225600, step=300)
    asked = manager.asked("GET /nodes/n1/metrics")[0].query
    assert asked == {"from": "-10m", "to": "1767225600", "step": "300"}
    disk = found.series["disk_percent"]
    assert disk.average == [1.0, None]
    assert disk.trend.full_at == datetime(2026, 1, 2, tzinfo=UTC)
    assert found.gpus[0].series["power_w"].maximum == [2.0, None]
    assert found.to_dict()["from"] == NODE["from"]
    client.node_metrics("n1")
    assert manager.asked("GET /nodes/n1/metrics")[1].query == {}


def test_the_cluster_s_figures_are_typed(manager: StandIn, client: Client) -> None:
    manager.on("GET /cluster/metrics", CLUSTER)
    found = client.cluster_metrics("7d")
    assert manager.seen[0].query == {"timeframe": "7d"}
    assert found.metrics.total_tasks == 4
    assert found.metrics.success_rate is None
    assert found.series["cpu_percent"].average == [None]
