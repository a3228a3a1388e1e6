"""How often tasks start within the interval that was foretold when they came.

Runs in the serving simulator like `serving_adapter.Corral`. A task that starts in the
moment it comes is not counted: of it nothing was foretold.
"""

from __future__ import annotations

from typing import Any

from bench.serving_adapter import Corral
from corral.scheduler.explain.values import ExpectedStart


class Foretelling(Corral):
    """The product's scheduler, asked about each task that has to wait."""

    def __init__(self, sim: Any) -> None:
        super().__init__(sim)
        self.came: dict[str, float] = {}
        self.foretold: dict[str, ExpectedStart] = {}
        sim.foretelling = self

    def assign(self, task: Any) -> None:
        super().assign(task)
        if self.tries[task.id] == 1:
            self.came[str(task.id)] = task.arrival

    def _look(self) -> None:
        # What waits when time has gone on did not start when it came; nothing that
        # the scheduler was told since.
        for task_id, at in list(self.came.items()):
            if self.sim.now > at:
                del self.came[task_id]
                start = self.scheduler.expect(task_id, at)
                if start is not None:
                    self.foretold[task_id] = start
        super()._look()


def coverage(sim: Any) -> dict[str, float]:
    """Of a simulation that ran with `Foretelling`: percent kept, and how wide."""
    told = sim.foretelling
    forecasts = told.scheduler.forecasts
    widths = sorted(start.high - start.low for start in told.foretold.values())
    return {
        "start_interval_coverage_pct": 100.0 * forecasts.kept / forecasts.checked,
        "start_interval_checked": forecasts.checked,
        "start_interval_median_width_s": widths[len(widths) // 2],
        "start_interval_mean_width_s": sum(widths) / len(widths),
    }
