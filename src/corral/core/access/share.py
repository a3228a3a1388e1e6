"""A share of the cluster: how much one owner, or all tasks with one label, may have."""

from __future__ import annotations

import math
from dataclasses import dataclass

from corral.core.nodes.labels import check_label
from corral.errors import InvalidField

OWNER = "owner"
"""As a key: whoever submitted the task, not a label of it."""
EACH = "*"
"""As a value: every value that has no share of its own, each for itself."""
DAY_S = 86_400
_MOST_WEIGHT = 1e6
_MOST_RUNNING = 1_000_000


@dataclass(frozen=True, slots=True)
class Share:
    """`name` reads KEY=VALUE: `owner=ann`, or a label of tasks like `team=vision`.

    With a `weight` all values of that key share the cluster in proportion; who has
    none counts 1. `max_running` and `gpu_seconds_per_day` (UTC) are limits.
    """

    name: str
    weight: float | None = None
    max_running: int | None = None
    gpu_seconds_per_day: float | None = None

    @property
    def key(self) -> str:
        return self.name.partition("=")[0]

    @property
    def value(self) -> str:
        return self.name.partition("=")[2]

    @property
    def is_each(self) -> bool:
        return self.value == EACH


@dataclass(frozen=True, slots=True)
class ShareUse:
    """What was used of a share on a day, counted in days since epoch (UTC)."""

    name: str
    day: int
    gpu_seconds: float


def check_share(share: Share) -> Share:
    """The share, if it is one.

    Raises:
        InvalidField: a name or number that means nothing.
    """
    value = "each" if share.is_each else share.value
    check_label(share.key, value, "name")
    limits = (share.weight, share.max_running, share.gpu_seconds_per_day)
    if all(limit is None for limit in limits):
        raise InvalidField(
            "a share says weight, max_running or gpu_seconds_per_day", field="weight"
        )
    weight, running, gpu_s = limits
    if weight is not None and not 1e-6 <= weight <= _MOST_WEIGHT:
        raise InvalidField("weight must be over 0, at most 1000000", field="weight")
    if running is not None and not 0 <= running <= _MOST_RUNNING:
        raise InvalidField(
            f"max_running must be 0 to {_MOST_RUNNING}", field="max_running"
        )
    if gpu_s is not None and not (math.isfinite(gpu_s) and gpu_s >= 0):
        raise InvalidField(
            "gpu_seconds_per_day must be 0 or more", field="gpu_seconds_per_day"
        )
    return share
