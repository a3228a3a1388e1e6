"""Growing delays between tries, spread a little so that nodes do not come in step."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Doubles from `first_s` to `cap_s`; `reset` starts over."""

    first_s: float
    cap_s: float
    jitter: float = 0.1
    failures: int = field(default=0, init=False)

    def next_s(self) -> float:
        """The delay before the next try, one failure later than before."""
        delay = min(self.first_s * 2.0 ** min(self.failures, 32), self.cap_s)
        self.failures += 1
        # Never above the cap: it is a promise about how soon the next try comes.
        return delay * (1.0 - self.jitter * random.random())

    def reset(self) -> None:
        self.failures = 0
