"""What batches of a model take beside it: learned by their size, and used in time.

With it the largest batch that fits is known before one runs out of memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial

# What was never tried is believed as far as this many times what was; beyond that,
# each token counts as that many.
_REACH = 4.0
# A word on the same size is news only when it differs by so much.
_NEWS = 0.1
_SMALLEST_MB = 1.0

Look = Callable[[], None]
"""Passes on what was taken so far."""


@dataclass(slots=True)
class Peaks:
    """By size of batch: the most memory it took, in MB, and its tokens then."""

    seen: dict[int, tuple[float, int]] = field(default_factory=dict)

    def learn(self, count: int, tokens: int, peak_mb: float) -> None:
        """Sizes are told apart by powers of two; the largest of each counts."""
        size = 1 << max(count - 1, 0).bit_length()
        known_mb, known_tokens = self.seen.get(size, (0.0, 0))
        if peak_mb >= _SMALLEST_MB and peak_mb > known_mb * (1 + _NEWS):
            self.seen[size] = (round(peak_mb, 1), tokens)
        elif known_mb and tokens > known_tokens:
            # More for the same: each token takes less than was thought.
            self.seen[size] = (known_mb, tokens)

    def told(self) -> dict[int, float]:
        return {size: peak_mb for size, (peak_mb, _) in sorted(self.seen.items())}

    def tokens_in(self, free_mb: float) -> float:
        """How many tokens a batch may have, by what others took; none known, any."""
        if not self.seen:
            return math.inf
        points = sorted((tokens, peak_mb) for peak_mb, tokens in self.seen.values())
        (least, small_mb), (most, large_mb) = points[0], points[-1]
        each_mb = large_mb / max(most, 1)
        if most > least and large_mb > small_mb:
            # A part of it is there whatever the size.
            each_mb = min(each_mb, (large_mb - small_mb) / (most - least))
        more = (free_mb - large_mb) / each_mb
        return max(min(most + more, max(most * _REACH, most + more / _REACH)), 1.0)


@dataclass(frozen=True, slots=True)
class BatchMemory:
    """Looks at one model's batches.

    `free_mb` tells what may still be taken, None where nobody can; `watch` passes on
    what was taken while it is open, in MB, at its end and whenever it is asked to.
    """

    peaks: Peaks
    free_mb: Callable[[], float | None]
    watch: Callable[[Callable[[float], None]], AbstractContextManager[Look]]

    def tokens(self) -> float:
        """What the next batch may have at most."""
        return self.tokens_in(self.free_mb())

    def tokens_in(self, free_mb: float | None) -> float:
        """What a batch may have at most that began with so much free."""
        return math.inf if free_mb is None else self.peaks.tokens_in(free_mb)

    def batch(self, count: int, tokens: int) -> AbstractContextManager[Look]:
        """Goes around one batch, and learns what it took."""
        return self.watch(partial(self.peaks.learn, count, tokens))


def no_gauge() -> BatchMemory:
    """For what is not measured."""
    return BatchMemory(Peaks(), lambda: None, lambda note: nullcontext(lambda: None))
