"""How long things are kept.

Part of `Settings`; what each is for stands in docs/settings.md. Nothing is read here.
"""

from __future__ import annotations

from pydantic_settings import BaseSettings

from corral.settings import sources as alias
from corral.settings.sources import Seconds, setting


class RetentionSettings(BaseSettings):
    """What `Settings` has of times and sizes after which things go."""

    keep_tasks_s: Seconds = setting(30.0 * alias.DAY_S, span=alias.KEEP)
    keep_events_s: Seconds = setting(30.0 * alias.DAY_S, span=alias.KEEP)
    keep_samples_s: Seconds = setting(1.0 * alias.DAY_S, span=alias.KEEP)
    keep_minutes_s: Seconds = setting(7.0 * alias.DAY_S, span=alias.KEEP)
    keep_hours_s: Seconds = setting(365.0 * alias.DAY_S, span=alias.KEEP)
    keep_audit_s: Seconds = setting(365.0 * alias.DAY_S, span=alias.KEEP)
    keep_objects_s: Seconds = setting(7.0 * alias.DAY_S, span=alias.KEEP)
    log_limit_mb: float = setting(8.0, span=(0.01, 10_000))
    journal_events: int = setting(100_000, span=(0, 10_000_000))
