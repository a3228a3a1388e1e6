"""Charts of figures over time: which steps, which points.

A step without a reading has no value: nothing is filled in or smoothed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from corral.core.insight.metric import (
    HOURS_S,
    MINUTES_S,
    Figures,
    MetricSpan,
    MetricStep,
)
from corral.core.insight.trend import Trend
from corral.errors import InvalidField

POINTS = 300
"""What a chart has at most when nobody asks for another step."""
MAX_POINTS = 5000
_NICE_S = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    10_800,
    21_600,
    43_200,
    86_400,
)
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGO = re.compile(r"-(\d{1,9}(?:\.\d{1,9})?)([smhdw])")


@dataclass(frozen=True, slots=True)
class Series:
    """One value for each step of a span; None where there was no reading."""

    average: Figures
    maximum: Figures
    trend: Trend = field(default_factory=Trend)


@dataclass(frozen=True, slots=True)
class Extent:
    average: float | None = None
    peak: float | None = None
    minimum: float | None = None


@dataclass(frozen=True, slots=True)
class ReadingRetention:
    """How long readings are kept raw and in the first thinned step; their distance."""

    raw_s: float
    minutes_s: float
    sample_s: float = 30.0


def read_moment(text: str, now: datetime, field: str) -> datetime:
    """`now`, `-24h` (s, m, h, d, w), epoch seconds or an ISO 8601 time.

    Raises:
        InvalidField: it is none of these.
    """
    try:
        if text == "now":
            return now
        if ago := _AGO.fullmatch(text):
            return now - timedelta(seconds=float(ago[1]) * _UNITS_S[ago[2]])
        if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", text):
            return datetime.fromtimestamp(float(text), UTC)
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise InvalidField(
            f"{field} must be like -24h, or epoch seconds, or an ISO 8601 time",
            field=field,
        ) from None


def plan(
    begin: datetime,
    end: datetime,
    step_s: int | None,
    now: datetime,
    kept: ReadingRetention,
) -> MetricSpan:
    """The steps of a chart: those asked for, made coarser where finer ones are gone.

    Raises:
        InvalidField: the times are the wrong way round, or that is too many points.
    """
    first, last = begin.timestamp(), min(end, now).timestamp()
    if first < 0 or not first < last:
        raise InvalidField("from must be before to and before now", field="from")
    length = last - first
    if step_s is None:
        step = _default_step(length, kept.sample_s)
    elif step_s < 1 or length / step_s > MAX_POINTS:
        raise InvalidField(
            f"step must be at least 1 s, and give at most {MAX_POINTS} points",
            field="step",
        )
    else:
        step = step_s
    step = _available(step, (now - begin).total_seconds(), kept)
    return MetricSpan(
        math.floor(first / step) * step, math.ceil(last / step) * step, int(step)
    )


def _default_step(length_s: float, sample_s: float) -> int:
    # Readings come a little early or late: finer steps would have holes.
    least = max(length_s / POINTS, min(2 * sample_s, length_s))
    days = math.ceil(least / _NICE_S[-1]) * _NICE_S[-1]
    return next((step for step in _NICE_S if step >= least), days)


def _available(step: int, age_s: float, kept: ReadingRetention) -> int:
    if age_s > max(kept.minutes_s, kept.raw_s) + HOURS_S:
        return math.ceil(step / HOURS_S) * HOURS_S
    if age_s > kept.raw_s + MINUTES_S:
        return math.ceil(step / MINUTES_S) * MINUTES_S
    return step


def charts(
    names: Sequence[str], buckets: Iterable[MetricStep], span: MetricSpan
) -> dict[str, Series]:
    """A series per metric, without trends."""
    known = {bucket.at: bucket for bucket in buckets}
    nothing = MetricStep(0, 0, (None,) * len(names), (None,) * len(names))
    rows = [known.get(at, nothing) for at in span.times]
    return {
        name: Series(
            tuple(row.average[place] for row in rows),
            tuple(row.maximum[place] for row in rows),
        )
        for place, name in enumerate(names)
    }


def percent(used: Series, total: Series) -> Series:
    """One series as a share of another one's averages."""
    return Series(
        _shares(used.average, total.average), _shares(used.maximum, total.average)
    )


def _shares(used: Figures, total: Figures) -> Figures:
    return tuple(
        100.0 * u / t if u is not None and t else None
        for u, t in zip(used, total, strict=True)
    )


def last_known(figures: Figures) -> float | None:
    return next((value for value in reversed(figures) if value is not None), None)


def over_time(series: Series) -> Extent:
    """Mean, highest and lowest of the averages."""
    known = [value for value in series.average if value is not None]
    if not known:
        return Extent()
    return Extent(sum(known) / len(known), max(known), min(known))
