"""Figures of machines over time: what is measured, and how readings are put together.

Plain arithmetic on values; where they are kept is the store's business.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from corral.core.nodes.gpu import Gpu
from corral.core.nodes.node import Sample

MINUTES_S, HOURS_S = 300, 3600
"""The steps readings are thinned to, one after the other; the second is a multiple."""
SLACK_S = 60
"""By so much later may a reading be written than it was taken."""

NODE_METRICS = (
    "cpu_percent",
    "load_1m",
    "memory_used_mb",
    "memory_total_mb",
    "disk_used_gb",
    "disk_total_gb",
    "network_rx_rate",
    "network_tx_rate",
    "gpu_count",
    "gpu_utilization_percent",
    "gpu_memory_used_mb",
    "gpu_memory_total_mb",
)
CLUSTER_METRICS = (
    "cpu_percent",
    "memory_used_mb",
    "memory_total_mb",
    "gpu_count",
    "gpu_utilization_percent",
    "gpu_memory_used_mb",
    "gpu_memory_total_mb",
)
"""Those of all nodes together: means of the first, sums of the others."""
GPU_SHARE = "gpu_utilization_percent"
"""But of this one the mean over all cards."""
GPU_METRICS = ("memory_used_mb", "utilization_percent", "temperature_c", "power_w")
SURE = frozenset(
    name
    for name in NODE_METRICS
    if not name.startswith(("network_", "gpu_")) or name == "gpu_count"
)
"""What every reading of a machine has."""

Figures: TypeAlias = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One reading of one card."""

    node_id: str
    at: datetime
    gpu: Gpu


@dataclass(frozen=True, slots=True)
class MetricSpan:
    """A stretch of time in steps, in epoch seconds; both ends are whole steps."""

    begin: int
    end: int
    step_s: int

    @property
    def source_s(self) -> int:
        """The coarsest thinned step that its own is made of; 0 for none of them."""
        steps = (HOURS_S, MINUTES_S)
        return next((step for step in steps if self.step_s % step == 0), 0)

    @property
    def times(self) -> range:
        return range(self.begin, self.end, self.step_s)


@dataclass(frozen=True, slots=True)
class MetricStep:
    """All readings of one step: their number, and per metric their mean and maximum."""

    at: int
    samples: int
    average: Figures
    maximum: Figures


@dataclass(frozen=True, slots=True)
class TaskTotals:
    """Tasks that ended in some time; `busiest` is the most in any five minutes.

    `response_s` is what all completed ones took together, from submit to end.
    """

    ended: int = 0
    completed: int = 0
    failed: int = 0
    response_s: float = 0.0
    busiest: int = 0


@dataclass(frozen=True, slots=True)
class TaskStep:
    """Tasks that ended in one step; `waiting` is the most that waited in it."""

    at: int
    completed: int = 0
    failed: int = 0
    response_s: float = 0.0
    waiting: int | None = None


def rate(
    before: tuple[datetime, int], now: tuple[datetime, int], gap_s: float
) -> float | None:
    """Growth of a counter per second between two readings of it.

    None where that cannot be told: they lie further apart than `gap_s`, or the counter
    began anew meanwhile, as after a reboot.
    """
    passed_s = (now[0] - before[0]).total_seconds()
    grown = now[1] - before[1]
    if grown < 0 or not 0 < passed_s <= gap_s:
        return None
    return grown / passed_s


def with_gpus(sample: Sample, gpus: Iterable[Gpu]) -> Sample:
    """A machine's reading with that of the cards it offers, summed up."""
    cards = [gpu for gpu in gpus if gpu.is_offered and gpu.error is None]
    uses = _known(gpu.utilization_percent for gpu in cards)
    used = _known(gpu.memory_used_mb for gpu in cards)
    total = _known(gpu.memory_total_mb for gpu in cards)
    return replace(
        sample,
        gpu_count=len(cards),
        gpu_utilization_percent=sum(uses) / len(uses) if uses else None,
        gpu_memory_used_mb=sum(used) if used else None,
        gpu_memory_total_mb=sum(total) if total else None,
    )


def node_bucket(sample: Sample) -> MetricStep:
    figures = tuple(_float(getattr(sample, name)) for name in NODE_METRICS)
    return MetricStep(int(sample.at.timestamp()), 1, figures, figures)


def gpu_bucket(sample: GpuSample) -> MetricStep:
    figures = tuple(_float(getattr(sample.gpu, name)) for name in GPU_METRICS)
    return MetricStep(int(sample.at.timestamp()), 1, figures, figures)


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


def gather(buckets: Iterable[MetricStep], step_s: int) -> list[MetricStep]:
    """One node's or card's readings in coarser steps, in the order of time."""
    steps: dict[int, list[MetricStep]] = defaultdict(list)
    for bucket in buckets:
        steps[bucket.at - bucket.at % step_s].append(bucket)
    return [_merged(at, steps[at]) for at in sorted(steps)]


def _merged(at: int, parts: Sequence[MetricStep]) -> MetricStep:
    weights = [part.samples for part in parts]
    average = tuple(
        _mean(column, weights)
        for column in zip(*(part.average for part in parts), strict=True)
    )
    return MetricStep(at, sum(weights), average, _maxima(parts))


def _maxima(parts: Sequence[MetricStep]) -> Figures:
    columns = zip(*(part.maximum for part in parts), strict=True)
    return tuple(max(_known(column), default=None) for column in columns)


def _known(column: Iterable[float | None]) -> list[float]:
    return [value for value in column if value is not None]


def _mean(column: Sequence[float | None], weights: Sequence[float]) -> float | None:
    known = [(v, w) for v, w in zip(column, weights, strict=True) if v is not None]
    total = sum(w for _, w in known)
    return sum(v * w for v, w in known) / total if total else None


def across(nodes: Iterable[Iterable[MetricStep]]) -> list[MetricStep]:
    """Nodes put together step by step, as CLUSTER_METRICS.

    `samples` is then how many nodes there were, a maximum the highest of any.
    """
    steps: dict[int, list[MetricStep]] = defaultdict(list)
    for buckets in nodes:
        for bucket in buckets:
            steps[bucket.at].append(bucket)
    return [_together(at, steps[at]) for at in sorted(steps)]


def _together(at: int, parts: Sequence[MetricStep]) -> MetricStep:
    cards = [part.average[NODE_METRICS.index("gpu_count")] or 0.0 for part in parts]
    average: list[float | None] = []
    for name in CLUSTER_METRICS:
        column = [part.average[NODE_METRICS.index(name)] for part in parts]
        if name == CLUSTER_METRICS[0]:
            average.append(_mean(column, [1] * len(column)))
        elif name == GPU_SHARE:
            average.append(_mean(column, cards))
        else:
            known = _known(column)
            average.append(sum(known) if known else None)
    highest = dict(zip(NODE_METRICS, _maxima(parts), strict=True))
    maximum = tuple(highest[name] for name in CLUSTER_METRICS)
    return MetricStep(at, len(parts), tuple(average), maximum)
