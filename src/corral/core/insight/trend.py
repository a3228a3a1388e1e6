"""Where a figure is heading: a line through its points, and when it will be full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import mul

from corral.core.insight.metric import Figures, MetricSpan

_TREND_POINTS = 6
_TREND_FIT = 0.5
# No further ahead than so many times what was looked at.
_TREND_REACH = 10.0


@dataclass(frozen=True, slots=True)
class Trend:
    """`per_hour` is the slope of the averages; `full_at` when capacity is reached."""

    per_hour: float | None = None
    full_at: datetime | None = None


def trend(averages: Figures, span: MetricSpan, capacity: float | None = None) -> Trend:
    """Where a figure is heading, by least squares; empty where that is unclear.

    Args:
        averages: What was measured.
        span: When.
        capacity: What it can reach at most; None for nothing to run full.
    """
    pairs = zip(span.times, averages, strict=True)
    points = [(at, value) for at, value in pairs if value is not None]
    if len(points) < _TREND_POINTS:
        return Trend()
    slope, fit = _line(points)
    last_at, last = points[-1]
    reach_s = _TREND_REACH * (last_at - points[0][0])
    full_at = None
    if capacity is not None and slope > 0 and fit >= _TREND_FIT:
        left_s = max(capacity - last, 0.0) / slope
        if left_s <= reach_s:
            full_at = datetime.fromtimestamp(last_at + left_s, UTC)
    return Trend(slope * 3600.0, full_at)


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Slope per second, and the share of the variance that the line explains."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    xs = [x - mean_x for x, _ in points]
    ys = [y - mean_y for _, y in points]
    xx, xy, yy = (sum(map(mul, a, b)) for a, b in ((xs, xs), (xs, ys), (ys, ys)))
    return xy / xx, (xy * xy / (xx * yy) if yy else 0.0)
