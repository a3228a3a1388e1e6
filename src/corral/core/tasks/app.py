"""An app: an HTTP service that the gateway forwards to under its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

LINK_PREFIX = "app:"


@dataclass(frozen=True, slots=True)
class App:
    """`timeout_s` is how long it may be silent, `concurrency` how many tasks of job
    types that target it are with it at once. `timeouts` has other limits for what
    begins with a path: `{"/train": 600.0}`.
    """

    name: str
    url: str
    timeout_s: float = 60.0
    concurrency: int = 64
    created_at: datetime | None = None
    timeouts: Mapping[str, float] = field(default_factory=dict)

    def timeout_for(self, path: str) -> float:
        """The limit of the longest path that this one is or is below."""
        best = max(
            (p for p in self.timeouts if _is_below(path, p)), key=len, default=""
        )
        return self.timeouts[best] if best else self.timeout_s

    @property
    def link_id(self) -> str:
        """What stands in a task's `worker_id` while it is with this app."""
        return LINK_PREFIX + self.name


def _is_below(path: str, other: str) -> bool:
    return path == other or path.startswith(other.rstrip("/") + "/")
