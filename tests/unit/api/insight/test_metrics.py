"""Figures over time as users ask for them: of a node, of its GPUs, of the cluster."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from tests.unit.api.nodes.test_gpus import card
from tests.unit.api.world import FakeNode, Json, World, fault

SAMPLE: Json = {
    "cpu_count": 8,
    "cpu_percent": 25.0,
    "memory_total_mb": 1000.0,
    "memory_used_mb": 250.0,
    "disk_total_gb": 200.0,
    "disk_used_gb": 100.0,
    "network_rx_bytes": 1_000_000,
    "network_tx_bytes": 0,
    "load_1m": 1.5,
    "load_5m": 1.0,
    "load_15m": 0.5,
}


async def take(world: World, node: FakeNode, seconds: float = 30, **more: Any) -> None:
    """One regular sample reaches the store."""
    gpus = more.pop("gpus", None)
    await node.beat(sample={**SAMPLE, **more}, gpus=gpus)
    await world.manager.nodes.readings.step()
    world.clock.step(seconds)


async def metrics(world: World, node: FakeNode, **query: Any) -> Json:
    return await world.read.ask(f"/nodes/{node.id}/metrics", **query)


def known(series: Json, figure: str = "average") -> list[float]:
    return [value for value in series[figure] if value is not None]


@pytest.mark.spec("A1")
@pytest.mark.spec("B6")
async def test_a_node_shows_every_figure_with_mean_and_maximum(world: World) -> None:
    node = await world.node()
    assert (await node.register())["sample_s"] == 30.0
    for percent in (10.0, 30.0):
        await take(world, node, cpu_percent=percent)
    found = await metrics(world, node, **{"from": "-10m", "step": 60})
    assert set(found["series"]) == {
        "cpu_percent",
        "memory_percent",
        "memory_used_mb",
        "disk_percent",
        "disk_used_gb",
        "load_1m",
        "network_rx_bytes_s",
        "network_tx_bytes_s",
    }
    assert known(found["series"]["cpu_percent"]) == [20.0]
    assert known(found["series"]["cpu_percent"], "maximum") == [30.0]
    assert known(found["series"]["memory_percent"]) == [25.0]
    assert known(found["series"]["disk_percent"]) == [50.0]
    assert found["step_s"] == 60
    times = [datetime.fromisoformat(text) for text in found["times"]]
    assert {(b - a).total_seconds() for a, b in pairwise(times)} == {60.0}
    for series in found["series"].values():
        assert len(series["average"]) == len(series["maximum"]) == len(times)


async def test_network_is_a_rate_and_a_reboot_leaves_no_spike(world: World) -> None:
    node = await world.node()
    for count in (1_000_000, 4_000_000, 10_000, 3_010_000):
        await take(world, node, network_rx_bytes=count)
    found = await metrics(world, node, **{"from": "-5m", "step": 30})
    assert known(found["series"]["network_rx_bytes_s"]) == [100_000.0, 100_000.0]
    assert known(found["series"]["cpu_percent"]) == [25.0] * 4


async def test_silence_is_a_gap_and_not_a_rate(world: World) -> None:
    node = await world.node()
    await take(world, node, seconds=3600)
    await take(world, node, network_rx_bytes=10**12)
    found = await metrics(world, node, **{"from": "-90m", "step": 300})
    assert known(found["series"]["network_rx_bytes_s"]) == []
    assert len(known(found["series"]["cpu_percent"])) == 2
    assert found["series"]["cpu_percent"]["average"].count(None) >= 16


@pytest.mark.spec("C37")
async def test_each_card_has_its_series_once_per_sample(world: World) -> None:
    node = await world.node()
    cards = [
        card("GPU-1", utilization_percent=80.0, temperature_c=70.0, power_w=300.0),
        card("GPU-2", index=1, error="no answer"),
    ]
    await take(world, node, gpus=cards)
    await node.beat(gpus=[card("GPU-1", utilization_percent=99.0)])
    await world.manager.nodes.readings.step()
    await take(world, node)
    found = await metrics(world, node, **{"from": "-5m", "step": 30})
    (gpu,) = found["gpus"]
    assert (gpu["id"], gpu["name"], gpu["memory_total_mb"]) == (
        "GPU-1",
        "NVIDIA H200",
        1000.0,
    )
    assert known(gpu["series"]["utilization_percent"]) == [80.0, 99.0]
    assert known(gpu["series"]["memory_used_mb"]) == [400.0, 400.0]
    assert known(gpu["series"]["temperature_c"]) == [70.0]
    assert known(gpu["series"]["power_w"], "maximum") == [300.0]


@pytest.mark.spec("A23")
async def test_a_disk_that_fills_tells_when_it_is_full(world: World) -> None:
    node = await world.node()
    for used in range(100, 190, 5):
        await take(world, node, seconds=600, disk_used_gb=float(used))
    found = await metrics(world, node, **{"from": "-3h", "step": 600})
    trend = found["series"]["disk_used_gb"]["trend"]
    assert trend["per_hour"] == pytest.approx(30.0)
    full_at = datetime.fromisoformat(trend["full_at"])
    assert 0 < (full_at - world.clock.now()).total_seconds() < 3600
    assert found["series"]["disk_percent"]["trend"]["full_at"] == trend["full_at"]
    assert found["series"]["cpu_percent"]["trend"] == {"per_hour": 0.0, "full_at": None}


async def test_a_month_is_answered_from_what_was_thinned(world: World) -> None:
    node = await world.node()
    for day in range(30):
        await take(world, node, seconds=86_400, cpu_percent=float(day))
    await world.manager.upkeep.prune()
    found = await metrics(world, node, **{"from": "-31d"})
    assert found["step_s"] == 10_800
    assert len(found["times"]) <= 301
    assert known(found["series"]["cpu_percent"]) == [float(day) for day in range(30)]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"from": "yesterday"}, "from"),
        ({"to": "soon"}, "to"),
        ({"from": "-1h", "to": "-2h"}, "from"),
        ({"from": "-30d", "step": 1}, "step"),
        ({"step": 0}, "step"),
        ({"step": "five"}, "step"),
        ({"step": 10**12}, "step"),
        ({"from": "9999-12-31T23:59:59"}, "from"),
        ({"from": "0001-01-01"}, "from"),
    ],
)
async def test_a_chart_that_cannot_be_drawn_is_refused(
    world: World, query: dict[str, Any], field: str
) -> None:
    node = await world.node()
    answer = await world.read.get(f"/nodes/{node.id}/metrics", **query)
    assert fault(answer, 422, "invalid_field")["details"]["field"].endswith(field)


async def test_an_unknown_node_and_timeframe_are_refused(world: World) -> None:
    fault(await world.read.get("/nodes/nobody/metrics"), 404, "node_not_found")
    answer = await world.read.get("/cluster/metrics", timeframe="2h")
    assert fault(answer, 422, "invalid_field")["details"]["field"] == "timeframe"


async def test_an_empty_cluster_has_figures_without_values(world: World) -> None:
    for timeframe in ("1h", "24h", "7d", "30d"):
        found = await world.read.ask("/cluster/metrics", timeframe=timeframe)
        told = found["metrics"]
        assert found["timeframe"] == timeframe
        assert (told["total_tasks"], told["peak_throughput"]) == (0, 0.0)
        assert told["success_rate"] is told["average_response_time"] is None
        assert told["gpu_utilization"] == dict.fromkeys(("average", "peak", "minimum"))
        assert len(found["times"]) <= 301


@pytest.mark.spec("C40")
async def test_the_cluster_counts_tasks_and_adds_up_its_nodes(world: World) -> None:
    await world.operate.tell("/job-types", {"name": "echo"})
    worker = await world.worker()
    for _ in range(3):
        await world.submit.submit()
        world.clock.step(2)
        await worker.finish(worker.take_one())
    await world.submit.submit()
    await worker.fail(worker.take_one())
    other = await world.node()
    gpus = [card("GPU-1", utilization_percent=60.0)]
    await take(world, worker.node, seconds=0, gpus=gpus)
    await take(world, other, seconds=120, memory_used_mb=750.0)
    await world.manager.insight.charts.step()
    found = await world.read.ask("/cluster/metrics", timeframe="1h")
    told = found["metrics"]
    assert (told["total_tasks"], told["failed_tasks"]) == (4, 1)
    assert (told["successful_tasks"], told["success_rate"]) == (3, 0.75)
    assert told["average_response_time"] == 2.0
    assert told["peak_throughput"] == 0.8
    assert told["gpu_utilization"] == {"average": 60.0, "peak": 60.0, "minimum": 60.0}
    assert told["memory_usage"] == {
        "average": 1000.0,
        "peak": 1000.0,
        "efficiency": 0.5,
    }
    assert told["gpu_memory_usage"]["average"] == 400.0
    assert [count for count in found["nodes"] if count] == [2]
    assert known(found["series"]["cpu_percent"]) == [25.0]
