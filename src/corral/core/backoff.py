"""Pauses that grow between tries: one value for all who wait and try again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """From `base_s` on each is `factor` times the last, up to `cap_s`.

    `jitter` is how far a pause may lie from that to either side, as a share of it.
    """

    base_s: float = 1.0
    cap_s: float = 100.0
    factor: float = 2.0
    jitter: float = 0.2

    def delay_s(self, failures: int, luck: float = 0.5) -> float:
        """Seconds before try `failures + 1`; `luck` in [0, 1) spreads the herd.

        With less than 0.5 it is never above the cap; with 0.5 there is no jitter.
        """
        exponent = min(max(failures - 1, 0), 64)
        delay = min(self.base_s * self.factor**exponent, self.cap_s)
        return delay * (1.0 + self.jitter * (2.0 * luck - 1.0))
