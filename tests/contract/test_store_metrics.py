"""Readings: kept, thinned once and only once, read again as charts, in both stores."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from corral.core.insight.metric import (
    CLUSTER_METRICS,
    GPU_METRICS,
    GPU_SHARE,
    NODE_METRICS,
    Figures,
    GpuSample,
    MetricSpan,
    MetricStep,
    TaskTotals,
)
from corral.core.nodes.gpu import Gpu
from corral.core.nodes.node import Sample
from corral.core.tasks.outcome import OutcomeKind
from corral.core.tasks.task import State
from corral.store.base import Retention, Store
from tests.contract.conftest import NOW, Insert, assigned, make_task, settlement
from tests.contract.test_store_registry import sample

# A whole hour, so that steps begin where a test begins.
HOUR = int(NOW.timestamp()) // 3600 * 3600
KEEP = Retention(1e9, 1e9, 86_400, 1e9, 7 * 86_400, 365 * 86_400)


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(HOUR + seconds, UTC)


def machine(seconds: float, cpu: float, node_id: str = "n1", **more: Any) -> Sample:
    return replace(sample(node_id, at(seconds), cpu), **more)


def card(seconds: float, used: float | None, node_id: str = "n1", **more: Any) -> Any:
    gpu = Gpu("GPU-1", "nvidia", "H200", memory_total_mb=1000.0, driver="580")
    return GpuSample(node_id, at(seconds), replace(gpu, memory_used_mb=used, **more))


async def fill(store: Store, samples: list[Sample], cards: list[Any] = []) -> None:  # noqa: B006
    await store.metrics.save_beats([], NOW, samples, cards)


def span(begin: int, end: int, step_s: int) -> MetricSpan:
    return MetricSpan(HOUR + begin, HOUR + end, step_s)


def close(some: Figures, others: Figures, rel: float = 1e-5) -> bool:
    return all(
        a is b if a is None or b is None else a == pytest.approx(b, rel=rel)
        for a, b in zip(some, others, strict=True)
    )


def cpu(buckets: Any, figure: str = "average") -> list[tuple[int, int, float]]:
    """Of each step: seconds since HOUR, readings, the figure."""
    return [(b.at - HOUR, b.samples, getattr(b, figure)[0]) for b in buckets]


@pytest.mark.spec("A20")
async def test_raw_readings_are_put_together_by_step_and_gaps_stay(
    store: Store,
) -> None:
    rows = [machine(s, c) for s, c in ((0, 10), (30, 30), (65, 50), (300, 7))]
    await fill(store, [*rows, machine(0, 99, "n2")])
    found = await store.metrics.node_history("n1", span(0, 360, 60))
    assert cpu(found) == [(0, 2, 20.0), (60, 1, 50.0), (300, 1, 7.0)]
    assert cpu(found, "maximum") == [(0, 2, 30.0), (60, 1, 50.0), (300, 1, 7.0)]
    assert await store.metrics.node_history("n3", span(0, 360, 60)) == []
    assert await store.metrics.node_history("n1", span(3600, 7200, 60)) == []


async def test_thinned_readings_tell_the_same_as_raw_ones(store: Store) -> None:
    rows = [
        machine(30 * n, n % 17, network_rx_rate=None if n % 3 else 100.0 * n)
        for n in range(500)
    ]
    await fill(store, rows, [card(30 * n, 10.0 * (n % 7)) for n in range(500)])
    wanted = span(0, 18_000, 3600)
    raw = await store.metrics.node_history("n1", wanted)
    ((_, raw_cards),) = await store.metrics.gpu_history("n1", wanted)
    await store.metrics.roll_up(at(20_000))
    thinned = await store.metrics.node_history("n1", wanted)
    ((gpu, thinned_cards),) = await store.metrics.gpu_history("n1", wanted)
    for before, after in ((raw, thinned), (raw_cards, thinned_cards)):
        assert [(b.at, b.samples) for b in before] == [(b.at, b.samples) for b in after]
        for a, b in zip(before, after, strict=True):
            assert close(b.maximum, a.maximum)
    rx = NODE_METRICS.index("network_rx_rate")
    # Where some readings lack a figure, their step weighs by all readings.
    for a, b in zip(raw, thinned, strict=True):
        assert close(b.average[:rx], a.average[:rx])
        assert close(b.average[rx:], a.average[rx:], rel=0.05)
    assert gpu == Gpu("GPU-1", "nvidia", "H200", memory_total_mb=1000.0, driver="580")


async def test_thinning_again_or_in_parts_changes_nothing(store: Store) -> None:
    await fill(store, [machine(30 * n, n) for n in range(400)])
    wanted = span(0, 12_000 // 3600 * 3600 + 3600, 3600)
    for seconds in (100, 700, 3000, 3000, 5000, 12_000, 13_000, 20_000, 20_000):
        await store.metrics.roll_up(at(seconds))
        await store.metrics.roll_up(at(seconds))
    found = await store.metrics.node_history("n1", wanted)
    assert [b.samples for b in found] == [120, 120, 120, 40]
    assert found[0].average[0] == pytest.approx(59.5)
    assert found[3].maximum[0] == 399


async def test_what_came_while_the_manager_was_down_is_thinned_later(
    store: Store,
) -> None:
    await fill(store, [machine(0, 1), machine(86_400 * 3, 3), machine(86_400 * 9, 9)])
    await store.metrics.roll_up(at(86_400 * 10))
    found = await store.metrics.node_history("n1", span(0, 86_400 * 10, 3600))
    assert cpu(found) == [(0, 1, 1), (86_400 * 3, 1, 3), (86_400 * 9, 1, 9)]


async def test_readings_newer_than_what_is_thinned_come_from_the_finer_tables(
    store: Store,
) -> None:
    await fill(store, [machine(30 * n, n) for n in range(130)])
    await store.metrics.roll_up(at(3700))
    await fill(store, [machine(3900, 1000)])
    found = await store.metrics.node_history("n1", span(0, 7200, 3600))
    assert [b.samples for b in found] == [120, 11]
    assert found[1].maximum[0] == 1000


async def test_a_mark_of_a_clock_that_was_wrong_does_not_stop_thinning(
    store: Store,
) -> None:
    await store.metrics.roll_up(at(86_400 * 400))
    await store.metrics.roll_up(at(60))
    await fill(store, [machine(30 * n, 5) for n in range(20)])
    await store.metrics.roll_up(at(2000))
    await store.prune(at(86_400 * 2), KEEP)
    assert cpu(await store.metrics.node_history("n1", span(0, 600, 300))) == [
        (0, 10, 5.0),
        (300, 10, 5.0),
    ]


async def test_pruning_leaves_each_reading_in_its_coarser_form(store: Store) -> None:
    rows = [machine(600 * n, n % 9) for n in range(144 * 10)]
    cards = [card(600 * n, n % 9) for n in range(144 * 10)]
    await fill(store, rows, cards)
    now = at(86_400 * 10)
    gone = await store.prune(now, KEEP)
    assert gone["system_resources"] == gone["gpu_resources"] == 144 * 9
    assert gone["system_minutes"] == gone["gpu_minutes"] == 144 * 3
    assert await store.prune(now, KEEP) == {}
    assert len(await store.metrics.samples("n1", at(0), 9999)) == 144
    days = await store.metrics.node_history("n1", span(0, 86_400 * 10, 3600))
    assert sum(b.samples for b in days) == 1440
    minutes = await store.metrics.node_history("n1", span(0, 86_400 * 10, 300))
    assert minutes[0].at == HOUR + 86_400 * 3
    ((_, hours),) = await store.metrics.gpu_history("n1", span(0, 86_400 * 10, 3600))
    assert (len(hours), sum(b.samples for b in hours)) == (240, 1440)
    year = replace(KEEP, hours_s=86_400)
    assert (await store.prune(now, year))["gpu_hours"] == 216


async def test_nothing_is_pruned_before_it_is_thinned(store: Store) -> None:
    await fill(store, [machine(0, 1)])
    await store.prune(at(100), replace(KEEP, samples_s=60))
    assert len(await store.metrics.samples("n1", at(0))) == 1


@pytest.mark.spec("A22", "C37")
async def test_each_card_has_a_history_and_what_is_unknown_stays_so(
    store: Store,
) -> None:
    second: dict[str, Any] = {"id": "GPU-2", "index": 1, "name": "odd\x00"}
    cards = [
        card(0, 100.0, utilization_percent=20.0, temperature_c=50.0, power_w=300.0),
        card(30, 300.0, utilization_percent=40.0, temperature_c=70.0, power_w=500.0),
        card(0, None, temperature_c=33.0, **second),
        card(0, 5.0, "n2"),
    ]
    await fill(store, [machine(0, 1)], cards)
    await fill(store, [], [card(60, 300.0, driver="590")])
    found = await store.metrics.gpu_history("n1", span(0, 60, 60))
    assert [(gpu.id, gpu.index, gpu.driver) for gpu, _ in found] == [
        ("GPU-1", 0, "590"),
        ("GPU-2", 1, "580"),
    ]
    (first,), (other,) = (buckets for _, buckets in found)
    assert first == MetricStep(HOUR, 2, (200, 30, 60, 400), (300, 40, 70, 500))
    assert other == MetricStep(HOUR, 1, (None, None, 33, None), (None, None, 33, None))
    assert found[1][0].name == "odd\ufffd"
    assert len(GPU_METRICS) == 4
    await fill(store, [], [card(0, 999.0)])
    assert (await store.metrics.gpu_history("n1", span(0, 60, 60)))[0][1] == [first]


async def test_the_cluster_is_its_nodes_put_together(store: Store) -> None:
    one: dict[str, Any] = {"gpu_count": 3, "gpu_utilization_percent": 10.0}
    two: dict[str, Any] = {"gpu_count": 1, "gpu_utilization_percent": 90.0}
    await fill(
        store,
        [
            machine(0, 10, **one, memory_used_mb=100.0),
            machine(30, 20, **one, memory_used_mb=200.0),
            machine(10, 45, "n2", **two, memory_used_mb=50.0),
            machine(70, 1, "n3"),
        ],
    )
    for _ in range(2):
        first, last = await store.metrics.cluster_history(span(0, 300, 60))
        figures = dict(zip(CLUSTER_METRICS, first.average, strict=True))
        assert (first.at, first.samples, last.samples) == (HOUR, 2, 1)
        assert (figures["cpu_percent"], first.maximum[0]) == (30.0, 45.0)
        assert (figures["memory_used_mb"], figures["gpu_count"]) == (200.0, 4)
        assert figures["gpu_utilization_percent"] == 30.0
        assert last.average[CLUSTER_METRICS.index(GPU_SHARE)] is None
        await store.metrics.roll_up(at(20_000))


async def test_ended_tasks_are_counted_once_by_when_they_ended(
    store: Store, term: int, insert: Insert
) -> None:
    tasks = await insert(*(assigned(make_task()) for _ in range(5)))
    ends = [
        settlement(tasks[0].id, finished_at=at(4000)),
        settlement(tasks[1].id, finished_at=at(4001)),
        settlement(
            tasks[2].id,
            finished_at=at(4400),
            state=State.TIMED_OUT,
            outcome=OutcomeKind.TIMED_OUT,
        ),
        settlement(
            tasks[3].id,
            finished_at=at(4400),
            state=State.CANCELLED,
            outcome=OutcomeKind.CANCELLED,
        ),
        settlement(
            tasks[4].id,
            finished_at=at(4400),
            state=State.QUEUED,
            outcome=OutcomeKind.FAILED,
        ),
    ]
    await store.tasks.settle_tasks(term, ends[:2])
    await store.tasks.settle_tasks(term, ends[2:])
    await store.metrics.roll_up(at(4010))
    assert await store.metrics.task_totals(HOUR, HOUR + 7200) == TaskTotals()
    for seconds in (4300, 4480, 4480, 9000):
        await store.metrics.roll_up(at(seconds))
    took = 8001 - 2 * (NOW.timestamp() - HOUR)
    found = await store.metrics.task_totals(HOUR, HOUR + 7200)
    assert found == TaskTotals(4, 2, 1, found.response_s, 2)
    assert found.response_s == pytest.approx(took)
    assert (await store.metrics.task_totals(HOUR + 4200, HOUR + 7200)).ended == 2
    await store.prune(at(9000), replace(KEEP, tasks_s=0, hours_s=9000 - 4100))
    assert (await store.metrics.task_totals(HOUR, HOUR + 7200)).ended == 2
