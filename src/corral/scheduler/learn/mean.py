"""Means that forget slowly: what every learned figure is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass

from corral.core.insight.learned import Figure

_LEAST_WEIGHT = 0.02
_LEAST_LOG_WEIGHT = 0.05
_UNKNOWN_SPREAD = 0.7
# How many single figures the spread of an unknown kind counts for.
_PRIOR = 3.0
_TAIL = 1.28
"""So many deviations from the middle is one of ten, on either side."""


@dataclass(slots=True)
class Mean:
    """A mean that moves less and less, but never stops."""

    count: float = 0.0
    value: float = 0.0
    spread: float = 0.0
    """The mean square of logarithms of what came over what was expected."""
    middle: float = 0.0
    """The mean of logarithms, at speed 1: one that is far out moves it little."""
    sole: str = ""
    """The one worker it comes from; empty when there were others."""

    def learn(self, each: float, count: int) -> None:
        if self.value > 0.0 and each > 0.0:
            off = math.log(max(each / self.value, 1e-9))
            weight = max(1.0 / (1.0 + self.count), _LEAST_WEIGHT)
            self.spread += weight * (off * off - self.spread)
        self.add(each, count)

    def add(self, each: float, count: int) -> None:
        """As `learn`, where nobody asks for the spread."""
        self.count += count
        # A slower batch is believed at once, so that a type that turned slow is not
        # sent in large orders for long.
        if count > 1 and each > 4 * self.value:
            self.value = each
            return
        weight = max(min(1.0, count / self.count), _LEAST_WEIGHT)
        self.value += weight * (each - self.value)

    def follow(self, each: float, weight: float) -> None:
        """As `learn`, with a weight that stays the same after the first."""
        if self.count and self.value > 0.0 and each > 0.0:
            off = math.log(max(each / self.value, 1e-9))
            self.spread += weight * (off * off - self.spread)
        self.value += (weight if self.count else 1.0) * (each - self.value)
        self.count += 1.0

    def centre(self, log_each: float, count: int) -> None:
        """Move the middle; before `learn`, which counts."""
        weight = max(min(1.0, count / (self.count + count)), _LEAST_LOG_WEIGHT)
        self.middle += weight * (log_each - self.middle)

    def deviation(self) -> float:
        """How far single ones lie from it, as a deviation of logarithms."""
        few = _UNKNOWN_SPREAD**2 * _PRIOR
        return math.sqrt((self.spread * self.count + few) / (self.count + _PRIOR))

    def figure(self, value: float) -> Figure:
        """Say `value`, which leans on this mean, and how sure that is."""
        by = math.exp(_TAIL * self.deviation())
        return Figure(value, value / by, value * by, int(self.count))


UNKNOWN_SPREAD = _UNKNOWN_SPREAD
