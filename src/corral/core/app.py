"""An app: an HTTP service that the gateway forwards to under its name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

LINK_PREFIX = "app:"


@dataclass(frozen=True, slots=True)
class App:
    """`timeout_s` is how long it may be silent, `concurrency` how many tasks of job
    types that target it are with it at once.
    """

    name: str
    url: str
    timeout_s: float = 60.0
    concurrency: int = 64
    created_at: datetime | None = None

    @property
    def link_id(self) -> str:
        """What stands in a task's `worker_id` while it is with this app."""
        return LINK_PREFIX + self.name
