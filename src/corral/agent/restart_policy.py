"""How workers are kept alive: when one that died is started again, and when not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChildPolicy:
    """How workers are kept alive; the defaults are the documented ones."""

    first_delay_s: float = 0.5
    longest_delay_s: float = 30.0
    healthy_after_s: float = 60.0
    deaths_to_error: int = 5
    silent_after_s: float = 30.0
    steady_s: float = 5.0
    stop_grace_s: float = 30.0
    log_limit_bytes: int = 10 * 1024 * 1024
