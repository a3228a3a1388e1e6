"""What is known of durations, speeds, loads and arrivals; all learned, in seconds."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

_WEIGHT = 0.3
_LEAST_WEIGHT = 0.02
_UNKNOWN_S = 15.0
_UNKNOWN_LOAD_S = 20.0
# How many tasks of its own a kind needs to be believed as much as its family.
_PRIOR = 3.0
_HALF_LIFE_S = 3600.0
_UNKNOWN_SPREAD = 0.7
_MOST_UNITS = 64


@dataclass(slots=True)
class _Mean:
    """A mean that moves less and less, but never stops."""

    count: float = 0.0
    value: float = 0.0
    spread: float = 0.0
    """The mean square of logarithms of what came over what was expected."""

    def learn(self, each: float, count: int) -> None:
        if self.value > 0.0 and each > 0.0:
            off = math.log(max(each / self.value, 1e-9))
            weight = max(1.0 / (1.0 + self.count), _LEAST_WEIGHT)
            self.spread += weight * (off * off - self.spread)
        self.count += count
        # A slower batch is believed at once, so that a type that turned slow is not
        # sent in large orders for long.
        if count > 1 and each > 4 * self.value:
            self.value = each
            return
        weight = max(min(1.0, count / self.count), _LEAST_WEIGHT)
        self.value += weight * (each - self.value)


class Estimates:
    """Durations are those of a worker of speed 1."""

    def __init__(self) -> None:
        self._runs: dict[Hashable, _Mean] = {}
        self._short: dict[str, float] = {}
        self._load_s: dict[str, float] = {}
        self._size_mb: dict[str, float] = {}
        self._rates: dict[str, tuple[float, float]] = {}
        self._all = _Mean()

    # runs --------------------------------------------------------------------
    def learn(
        self,
        job_type: str,
        count: int,
        seconds: float,
        model: str | None = None,
        units: int = 0,
        speed: float = 1.0,
    ) -> None:
        each = seconds / count
        self._learn_type(job_type, count, each)
        normal = each * speed
        self._all.learn(normal, count)
        kinds: list[Hashable] = [(job_type, model)]
        if units:
            kinds.append((job_type, model, min(units, _MOST_UNITS)))
        for kind in kinds:
            self._runs.setdefault(kind, _Mean()).learn(normal, count)

    def _learn_type(self, job_type: str, count: int, each: float) -> None:
        old = self._short.get(job_type)
        if old is None:
            self._short[job_type] = each
            return
        weight = 1.0 if each > 4 * old else 1.0 - (1.0 - _WEIGHT) ** min(count, 8)
        self._short[job_type] = old + weight * (each - old)

    def recent_s(self, job_type: str) -> float | None:
        """Seconds per task of this type lately, on whatever worker."""
        return self._short.get(job_type)

    def run_s(self, job_type: str, model: str | None = None, units: int = 0) -> float:
        """Expected seconds at speed 1; what is rarely seen leans on what is like it."""
        known = self._runs.get((job_type, model))
        if known is None:
            return self._all.value if self._all.count else _UNKNOWN_S
        base = known.value
        exact = self._runs.get((job_type, model, min(units, _MOST_UNITS)))
        if units and exact is not None:
            total = exact.count + _PRIOR
            return (exact.value * exact.count + base * _PRIOR) / total
        return base

    def spread(self, job_type: str, model: str | None = None) -> float:
        """How far runs lie from what is expected, as a deviation of logarithms."""
        known = self._runs.get((job_type, model))
        few = _UNKNOWN_SPREAD**2 * _PRIOR
        if known is None:
            return _UNKNOWN_SPREAD
        total = known.count + _PRIOR
        return math.sqrt((known.spread * known.count + few) / total)

    def is_known(self, job_type: str, model: str | None = None) -> bool:
        return (job_type, model) in self._runs

    # models ------------------------------------------------------------------
    def know_model(
        self, model: str, size_mb: float | None, load_s: float | None
    ) -> None:
        if size_mb is not None:
            self._size_mb[model] = size_mb
        if load_s is not None:
            old = self._load_s.get(model, load_s)
            self._load_s[model] = old + _WEIGHT * (load_s - old)

    def model(self, model: str) -> tuple[float | None, float | None]:
        """Size and load time of a model, as far as they are known."""
        return self._size_mb.get(model), self._load_s.get(model)

    def has_seen(self, model: str) -> bool:
        return model in self._size_mb or model in self._load_s

    def load_s(self, model: str) -> float:
        return self._load_s.get(model, _UNKNOWN_LOAD_S)

    def size_mb(self, model: str) -> float:
        return self._size_mb.get(model, 0.0)

    # arrivals ----------------------------------------------------------------
    def arrived(self, model: str, now: float) -> None:
        self._rates[model] = (self.demand(model, now) + 1.0, now)

    def demand(self, model: str, now: float) -> float:
        """Arrivals of late, those of an hour ago counting half."""
        count, at = self._rates.get(model, (0.0, now))
        age = max(0.0, now - at)
        return float(count * math.exp2(-age / _HALF_LIFE_S))
