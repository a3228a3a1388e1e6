"""When a node's owner uses it: what counts as use, and when it is over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from corral.core.nodes.gpu import Gpu


class OwnerMode(StrEnum):
    """What a node does while its owner uses it."""

    OFF = "off"
    PAUSE = "pause"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class OwnerPolicy:
    """Use of offered cards by others, or input within `idle_s`, is the owner's.

    It is over when none was seen for `resume_s`.
    """

    mode: OwnerMode = OwnerMode.OFF
    gpu_percent: float = 20.0
    gpu_memory_mb: float = 1024.0
    idle_s: float = 600.0
    resume_s: float = 60.0


def use_seen(
    policy: OwnerPolicy, gpus: Iterable[Gpu], idle_s: float | None
) -> str | None:
    """What of the owner's use is to be seen now, in words; None for nothing.

    `idle_s` is how long ago somebody typed or moved a mouse, None when unknown.
    """
    for gpu in gpus:
        if gpu.is_offered and (words := _use_of(policy, gpu)):
            return words
    if idle_s is not None and idle_s < policy.idle_s:
        return "somebody is at the machine"
    return None


def _use_of(policy: OwnerPolicy, gpu: Gpu) -> str | None:
    others = [p for p in gpu.processes if not p.is_ours]
    if not others:
        return None
    names = ", ".join(sorted({p.name or f"process {p.pid}" for p in others}))
    held_mb = sum(p.memory_mb or 0.0 for p in others)
    if held_mb >= policy.gpu_memory_mb:
        return f"{names} holds {held_mb:.0f} MB of {gpu.name}"
    # The driver counts a card's use as a whole: beside ours it tells nothing.
    is_alone = len(others) == len(gpu.processes)
    used = gpu.utilization_percent
    if is_alone and used is not None and used >= policy.gpu_percent:
        return f"{names} uses {used:.0f} % of {gpu.name}"
    return None


@dataclass(frozen=True, slots=True)
class Owner:
    """Is the owner using the node? `quiet_since` is when the last use ended."""

    is_active: bool = False
    reason: str = ""
    quiet_since: float | None = None

    def follow(self, seen: str | None, now: float, resume_s: float) -> Owner:
        """What a look at time `now` makes of it."""
        if seen is not None:
            return Owner(True, seen)
        if not self.is_active:
            return self
        since = now if self.quiet_since is None else self.quiet_since
        if now - since >= resume_s:
            return Owner()
        return replace(self, quiet_since=since)
