"""Counters and histograms as Prometheus reads them, and the text it reads.

To add a figure: if something happens, a `Counter` or `Histogram` in `Counters`, told
where it happens as `ctx.counters.NAME.add(...)`; if it can be looked up when somebody
asks, a `Gauge` (or `Count`) in the `gauges` of its feature. Then name it in
docs/metrics.md.

The first label of a counter or histogram may hold names that users make (job types,
models): once `most` of them are known, all later ones are counted as `other`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

OTHER = "other"
MOST = 100
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# What short and long tasks take: from a millisecond to a day.
SECONDS = (
    *(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 86_400.0),
)
# What a decision takes: from ten microseconds to a second.
MICROSECONDS = (
    *(0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005),
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0),
)
STATEMENT = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 10.0, 25.0),
)

Labels = tuple[str, ...]


class MetricFamily(Protocol):
    """All series of one name."""

    name: str
    text: str
    kind: str

    def lines(self) -> Iterator[str]: ...


class _BoundedSeries:
    """Which names have series of their own."""

    def __init__(self, name: str, text: str, labels: Labels, most: int) -> None:
        self.name = name
        self.text = text
        self.labels = labels
        self._most = most
        self._known: set[str] = set()

    def _bounded(self, labels: Labels) -> Labels:
        if len(labels) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {labels}")
        if not labels or labels[0] in self._known:
            return labels
        if len(self._known) >= self._most:
            return (OTHER, *labels[1:])
        self._known.add(labels[0])
        return labels


class Counter(_BoundedSeries):
    """Something that is counted, since the start of the manager."""

    kind = "counter"

    def __init__(
        self, name: str, text: str, labels: Labels = (), most: int = MOST
    ) -> None:
        super().__init__(name, text, labels, most)
        self._values: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, *labels: str, count: float = 1) -> None:
        values = self._values
        if labels in values:
            values[labels] += count
        else:
            labels = self._bounded(labels)
            values[labels] = values.get(labels, 0) + count

    def value(self, *labels: str) -> float:
        return self._values.get(labels, 0)

    def lines(self) -> Iterator[str]:
        for labels, value in self._values.items():
            yield _line(self.name, self.labels, labels, value)


class Histogram(_BoundedSeries):
    """How long something took; `buckets` are upper limits, rising."""

    kind = "histogram"

    def __init__(
        self,
        name: str,
        text: str,
        labels: Labels = (),
        buckets: Sequence[float] = SECONDS,
        most: int = MOST,
    ) -> None:
        super().__init__(name, text, labels, most)
        self._buckets = tuple(buckets)
        # For each series its sum, then how many fell under each limit: one look-up.
        self._cells: dict[Labels, list[float]] = {}
        if not labels:
            self._cells[()] = self._empty()

    def _empty(self) -> list[float]:
        return [0] * (len(self._buckets) + 2)

    def add(self, value: float, *labels: str) -> None:
        cell = self._cells.get(labels)
        if cell is None:
            cell = self._cells.setdefault(self._bounded(labels), self._empty())
        cell[0] += value
        cell[bisect_left(self._buckets, value) + 1] += 1

    def count(self, *labels: str) -> int:
        return int(sum(self._cells.get(labels, (0,))[1:]))

    def lines(self) -> Iterator[str]:
        names = (*self.labels, "le")
        for labels, (added, *counts) in self._cells.items():
            total = 0.0
            for limit, count in zip((*self._buckets, None), counts, strict=True):
                total += count
                text = "+Inf" if limit is None else _number(limit)
                yield _line(f"{self.name}_bucket", names, (*labels, text), total)
            yield _line(f"{self.name}_sum", self.labels, labels, added)
            yield _line(f"{self.name}_count", self.labels, labels, total)


class Gauge:
    """What is so now; `rows` has a value for each set of labels, None for unknown."""

    kind = "gauge"

    def __init__(
        self,
        name: str,
        text: str,
        rows: Mapping[Labels, float | None] | float | None,
        labels: Labels = (),
    ) -> None:
        self.name = name
        self.text = text
        self._labels = labels
        self._rows = rows if isinstance(rows, Mapping) else {(): rows}

    def lines(self) -> Iterator[str]:
        for labels, value in self._rows.items():
            if value is not None:
                yield _line(self.name, self._labels, labels, value)


class Count(Gauge):
    """What others have counted since the start."""

    kind = "counter"


def largest(counts: Mapping[str, float], most: int = MOST) -> dict[Labels, float]:
    """As rows of a gauge: the largest, and all others together."""
    ranked = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    rows: dict[Labels, float] = {(name,): value for name, value in ranked[:most]}
    if rest := ranked[most:]:
        rows[(OTHER,)] = rows.get((OTHER,), 0) + sum(value for _, value in rest)
    return rows


def exposition(family: MetricFamily) -> str:
    """A family in the text format, version 0.0.4."""
    name = family.name
    head = f"# HELP {name} {family.text}\n# TYPE {name} {family.kind}\n"
    return head + "".join(f"{line}\n" for line in family.lines())


def _line(name: str, names: Labels, values: Labels, value: float) -> str:
    if not names:
        return f"{name} {_number(value)}"
    pairs = zip(names, values, strict=True)
    said = ",".join(f'{key}="{_escaped(text)}"' for key, text in pairs)
    return f"{name}{{{said}}} {_number(value)}"


def _number(value: float) -> str:
    whole = int(value)
    return str(whole) if whole == value else repr(float(value))


def _escaped(text: str) -> str:
    if text.isalnum():
        return text
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
