"""How many requests a key or an address may make."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

_MAX_BUCKETS = 10_000


@dataclass(slots=True)
class TokenBucket:
    """A token bucket; `left` and `reset_s` go into the rate-limit headers."""

    rate_per_s: float
    burst: float
    left: float
    at: float

    def take(self, now: float) -> bool:
        self.left = min(self.burst, self.left + (now - self.at) * self.rate_per_s)
        self.at = now
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True

    def is_spent(self, now: float) -> bool:
        """Would `take` be refused?"""
        return self.left + (now - self.at) * self.rate_per_s < 1.0

    @property
    def reset_s(self) -> float:
        return (self.burst - self.left) / self.rate_per_s

    def figures(self) -> dict[str, int]:
        return {"limit": int(self.burst), "reset_s": math.ceil(self.reset_s)}


class TokenBuckets:
    """Buckets by name, the least recently used forgotten first."""

    def __init__(self, rate_per_s: float, burst: float) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._all: OrderedDict[str, TokenBucket] = OrderedDict()

    def get(self, name: str, now: float) -> TokenBucket:
        bucket = self._all.get(name)
        if bucket is None:
            bucket = TokenBucket(self._rate_per_s, self._burst, self._burst, now)
            self._all[name] = bucket
            if len(self._all) > _MAX_BUCKETS:
                self._all.popitem(last=False)
        self._all.move_to_end(name)
        return bucket


@dataclass(frozen=True, slots=True)
class RateLimits:
    per_s: float = 1000.0
    burst: float = 2000.0
    failures_per_min: float = 10.0
