"""What is known of how long a job type takes."""

from __future__ import annotations

_WEIGHT = 0.3


class Durations:
    """A moving mean of seconds per task, by job type."""

    def __init__(self) -> None:
        self._mean: dict[str, float] = {}

    def learn(self, job_type: str, count: int, seconds: float) -> None:
        each = seconds / count
        old = self._mean.get(job_type)
        if old is None:
            self._mean[job_type] = each
            return
        # A batch says more than a single task; a slower one is believed at once,
        # so that a type that turned slow is not sent in large orders for long.
        weight = 1.0 if each > 4 * old else 1.0 - (1.0 - _WEIGHT) ** min(count, 8)
        self._mean[job_type] = old + weight * (each - old)

    def get(self, job_type: str) -> float | None:
        return self._mean.get(job_type)
