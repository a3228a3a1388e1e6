"""How the scheduler is told to go about it."""

from __future__ import annotations

from dataclasses import dataclass

AHEAD = 2
"""Orders a slot may have of tasks so short that a round trip would show."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How large an order may be, and when a worker gets one ahead."""

    order_max_tasks: int = 200
    order_max_bytes: int = 1 << 20
    order_budget_s: float = 0.020
    ahead_below_s: float = 0.010
    ahead_late_s: float = 0.25
    """One that is late by more gets none ahead: nobody knows when it will be free."""
    most_models: int = 1000
    is_lru: bool = False
    strategy: str = "smith"
    preempts: bool = False
    """May tasks that allow it be stopped for critical ones?"""
    prefetch: str = "off"
    """Are models loaded before they are asked for: by `rate`, by `pattern`?"""
