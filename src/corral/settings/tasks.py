"""How tasks are limited, tried again, chosen and placed.

Part of `Settings`; what each is for stands in docs/settings.md. Nothing is read here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ByteSize, Field
from pydantic_settings import BaseSettings

from corral.settings import sources as alias
from corral.settings.sources import Seconds, setting

Strategy = Literal["smith", "least_loaded", "weighted_round_robin", "affinity"]


class TaskSettings(BaseSettings):
    """What `Settings` has of tasks."""

    # Limits and attempts
    task_timeout_s: Seconds = setting(300.0, "TASK_TIMEOUT", span=(0.1, alias.KEEP[1]))
    task_body_limit: ByteSize = setting(1 << 20, span=alias.SIZE)
    batch_body_limit: ByteSize = setting(16 << 20, span=alias.SIZE)
    retry_base_s: Seconds = setting(1.0, span=alias.WAIT)
    retry_cap_s: Seconds = setting(100.0, span=alias.WAIT)
    max_losses: int = setting(3, span=(1, 1000))

    # The scheduler
    strategy: Strategy = setting("smith")
    preemption: bool = setting(False)
    order_max_tasks: int = setting(200, span=(1, 10_000))
    order_budget_ms: float = setting(20.0, span=(0.1, 60_000))
    overrun_ms: float = setting(50.0, span=(1, 60_000))

    # From elsewhere
    task_manager_url: alias.HttpUrl | None = setting(None, "TASK_MANAGER_URL")
    task_manager_key: alias.ApiKey | None = setting(None)
    task_manager_label: Annotated[
        str | None, Field(pattern=r"^[^:\s]+:.+$"), "a label like origin:portal"
    ] = setting(None)
