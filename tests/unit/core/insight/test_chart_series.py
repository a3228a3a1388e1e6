"""Charts: rates of counters, steps, gaps, trends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.insight.chart_series import (
    MAX_POINTS,
    POINTS,
    ReadingRetention,
    Series,
    charts,
    over_time,
    percent,
    plan,
    read_moment,
)
from corral.core.insight.metric import (
    CLUSTER_METRICS,
    GPU_METRICS,
    NODE_METRICS,
    MetricSpan,
    MetricStep,
    across,
    gather,
    rate,
    with_gpus,
)
from corral.core.insight.trend import Trend, trend
from corral.core.nodes.gpu import Gpu
from corral.core.nodes.node import Sample
from corral.errors import InvalidField

NOW = datetime(2026, 3, 10, 12, 0, 7, tzinfo=UTC)
KEPT = ReadingRetention(86_400, 7 * 86_400, 30.0)
HOUR = 1_750_000_000 // 3600 * 3600


def ago(**parts: float) -> datetime:
    return NOW - timedelta(**parts)


def one(at: int, value: float | None, samples: int = 1) -> MetricStep:
    return MetricStep(at, samples, (value,), (value,))


def test_a_rate_is_growth_over_the_time_passed() -> None:
    later = NOW + timedelta(seconds=30)
    assert rate((NOW, 100), (later, 700), 105) == 20.0
    assert rate((NOW, 100), (later, 100), 105) == 0.0


def test_a_counter_that_began_anew_gives_no_rate() -> None:
    later = NOW + timedelta(seconds=30)
    assert rate((NOW, 10**15), (later, 50), 105) is None


@pytest.mark.parametrize("passed_s", [0.0, -5.0, 106.0])
def test_readings_at_once_or_too_far_apart_give_no_rate(passed_s: float) -> None:
    later = NOW + timedelta(seconds=passed_s)
    assert rate((NOW, 0), (later, 10**12), 105) is None


def test_a_mean_weighs_by_readings_and_leaves_out_the_unknown() -> None:
    found = gather([one(0, 10.0, 3), one(60, 50.0), one(119, None, 9)], 120)
    assert found == [MetricStep(0, 13, (20.0,), (50.0,))]
    assert gather([one(5, None)], 10) == [MetricStep(0, 1, (None,), (None,))]
    assert gather([], 10) == []


@given(
    st.lists(
        st.tuples(st.integers(0, 20_000), st.floats(0, 1e6)), min_size=1, max_size=60
    )
)
def test_steps_of_steps_are_as_steps_of_readings(rows: list[tuple[int, float]]) -> None:
    readings = [one(at, value) for at, value in rows]
    direct = gather(readings, 3600)
    staged = gather(gather(readings, 300), 3600)
    assert [(b.at, b.samples, b.maximum) for b in staged] == [
        (b.at, b.samples, b.maximum) for b in direct
    ]
    for a, b in zip(staged, direct, strict=True):
        assert a.average[0] == pytest.approx(b.average[0], abs=1e-6)


def test_only_offered_cards_that_can_be_read_are_summed_up() -> None:
    sample = Sample(
        8, 1.0, 2.0, 1.0, 2.0, 1.0, 0, 0, 0.0, 0.0, 0.0, node_id="n", at=NOW
    )
    card = Gpu("a", "nvidia", "x", memory_total_mb=10.0, is_offered=True)
    broken = Gpu("c", "nvidia", "x", memory_used_mb=9.0, is_offered=True, error="gone")
    hidden = Gpu("d", "nvidia", "x", memory_used_mb=9.0)
    used = Gpu(
        "b",
        "nvidia",
        "x",
        memory_total_mb=10.0,
        memory_used_mb=4.0,
        utilization_percent=50.0,
        is_offered=True,
    )
    told = with_gpus(sample, [card, used, broken, hidden])
    assert (told.gpu_count, told.gpu_utilization_percent) == (2, 50.0)
    assert (told.gpu_memory_used_mb, told.gpu_memory_total_mb) == (4.0, 20.0)
    assert with_gpus(sample, []) == sample


def test_a_node_that_says_nothing_of_gpus_does_not_lower_their_use() -> None:
    def node(cards: float, use: float | None) -> list[MetricStep]:
        told = {"gpu_count": cards, "gpu_utilization_percent": use, "cpu_percent": 10.0}
        figures = tuple(told.get(name) for name in NODE_METRICS)
        return [MetricStep(0, 5, figures, figures)]

    (found,) = across([node(8, 50.0), node(0, None), node(8, None)])
    figures = dict(zip(CLUSTER_METRICS, found.average, strict=True))
    assert (found.samples, figures["gpu_count"]) == (3, 16)
    assert (figures["gpu_utilization_percent"], figures["cpu_percent"]) == (50.0, 10.0)
    assert figures["memory_used_mb"] is None


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", NOW),
        ("-24h", ago(hours=24)),
        ("-90m", ago(minutes=90)),
        ("-1.5d", ago(days=1.5)),
        ("-2w", ago(days=14)),
        ("0", datetime(1970, 1, 1, tzinfo=UTC)),
        ("1772366400.5", datetime.fromtimestamp(1772366400.5, UTC)),
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-01T13:00:00+01:00", datetime(2026, 3, 1, 12, tzinfo=UTC)),
    ],
)
def test_moments_are_read_in_every_form(text: str, moment: datetime) -> None:
    assert read_moment(text, NOW, "from") == moment


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "24h", "-24", "--24h", "-999999999w", "nan", "1e9", "9" * 12],
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(InvalidField, match="from must be like -24h"):
        read_moment(text, NOW, "from")


@pytest.mark.parametrize(
    ("length", "step_s"),
    [
        ({"minutes": 1}, 60),
        ({"hours": 1}, 60),
        ({"hours": 24}, 300),
        ({"days": 7}, 3600),
        ({"days": 30}, 10_800),
        ({"days": 364}, 2 * 86_400),
    ],
)
def test_a_chart_has_as_many_points_as_can_be_seen(
    length: dict[str, float], step_s: int
) -> None:
    span = plan(ago(**length), NOW, None, NOW, KEPT)
    assert span.step_s == step_s
    assert len(span.times) <= POINTS + 1
    assert span.begin <= ago(**length).timestamp() < span.begin + step_s
    assert span.end - step_s < NOW.timestamp() <= span.end


@pytest.mark.parametrize(
    ("days", "asked_s", "step_s", "source_s"),
    [
        (0.5, 10, 10, 0),
        (0.5, 420, 420, 0),
        (0.5, 600, 600, 300),
        (2, 60, 300, 300),
        (2, 420, 600, 300),
        (20, 400, 3600, 3600),
        (20, 7000, 7200, 3600),
    ],
)
def test_steps_are_as_fine_as_what_is_kept(
    days: float, asked_s: int, step_s: int, source_s: int
) -> None:
    span = plan(ago(days=days), NOW, asked_s, NOW, KEPT)
    assert (span.step_s, span.source_s) == (step_s, source_s)


def test_a_chart_ends_now_even_when_more_is_asked_for() -> None:
    span = plan(ago(hours=1), NOW + timedelta(days=900), None, NOW, KEPT)
    assert span.end - NOW.timestamp() < span.step_s


@pytest.mark.parametrize(
    ("begin", "end", "step_s", "field"),
    [
        (NOW, NOW, None, "from"),
        (NOW, ago(hours=1), None, "from"),
        (NOW + timedelta(hours=1), NOW + timedelta(hours=2), None, "from"),
        (datetime(1960, 1, 1, tzinfo=UTC), NOW, None, "from"),
        (ago(hours=3), NOW, 2, "step"),
        (ago(hours=3), NOW, 0, "step"),
    ],
)
def test_a_chart_that_cannot_be_is_refused(
    begin: datetime, end: datetime, step_s: int | None, field: str
) -> None:
    with pytest.raises(InvalidField) as refused:
        plan(begin, end, step_s, NOW, KEPT)
    assert refused.value.details["field"] == field
    assert MAX_POINTS == 5000


def test_a_step_without_readings_is_null_in_the_chart() -> None:
    span = MetricSpan(600, 1500, 300)
    drawn = charts(("x",), [one(600, 1.0), one(1200, 3.0)], span)
    assert drawn == {"x": Series((1.0, None, 3.0), (1.0, None, 3.0))}
    total = Series((4.0, 4.0, 0.0), (4.0, 4.0, 0.0))
    assert percent(drawn["x"], total).average == (25.0, None, None)
    assert (over_time(drawn["x"]).average, over_time(drawn["x"]).peak) == (2.0, 3.0)
    assert over_time(Series((None,), (None,))).minimum is None


def line(*values: float | None) -> Series:
    return Series(values, values)


@pytest.mark.spec("A23")
def test_a_rising_series_tells_when_it_is_full() -> None:
    span = MetricSpan(HOUR, HOUR + 10 * 3600, 3600)
    grown = line(*(10.0 + 5.0 * hour for hour in range(10)))
    found = trend(grown.average, span, 100.0)
    assert found.per_hour == pytest.approx(5.0)
    assert found.full_at == datetime.fromtimestamp(HOUR + 18 * 3600, UTC)
    assert trend(grown.average, span) == Trend(found.per_hour)
    over = trend(grown.average, span, 50.0)
    assert over.full_at == datetime.fromtimestamp(HOUR + 9 * 3600, UTC)


@pytest.mark.parametrize(
    "values",
    [
        [50.0] * 10,
        [90.0 - hour for hour in range(10)],
        [10.0, 90.0] * 5,
        [10.0 + hour / 1000 for hour in range(10)],
        [None, None, None, None, None, 1.0, 2.0, 3.0, 4.0, 5.0],
    ],
)
def test_what_is_level_falling_restless_slow_or_too_short_is_never_full(
    values: list[float | None],
) -> None:
    span = MetricSpan(HOUR, HOUR + 10 * 3600, 3600)
    assert trend(line(*values).average, span, 100.0).full_at is None


def test_metrics_are_named_once() -> None:
    assert len(set(NODE_METRICS)) == len(NODE_METRICS)
    assert len(set(GPU_METRICS)) == len(GPU_METRICS)
