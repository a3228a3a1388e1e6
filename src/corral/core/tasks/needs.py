"""What a task takes of its node: processors, memory, GPUs or a part of one.

Whole numbers throughout, so that what is given back is exactly what was taken: CPU and
GPU in thousandths, memory in megabytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from corral.errors import InvalidField

WHOLE = 1000
"""A GPU, or a processor, in thousandths."""
LEAST = 1
"""What a task has of a card's time that asks for some of its memory alone."""
MOST_CARDS = 64
_MOST_MB = 1 << 24
_MOST_CPUS = 4096
_MOST_KINDS = 8
_VENDORS = ("nvidia", "amd", "intel", "apple", "microsoft", "simulated")
_FIELDS = ("gpus", "gpu_memory_mb", "gpu_kind", "gpu_vendor", "cpus", "memory_mb")


@dataclass(frozen=True, slots=True)
class Need:
    """What a task takes: `share` thousandths and `gpu_mb` of each of `gpus` cards."""

    cpu_milli: int = 0
    memory_mb: int = 0
    share: int = 0
    gpus: int = 0
    gpu_mb: int = 0
    kinds: frozenset[str] = frozenset()
    """Kinds of card that will do; all where empty."""
    vendor: str = ""
    """Whose cards will do; anybody's where empty."""

    def __post_init__(self) -> None:
        amounts = (self.cpu_milli, self.memory_mb, self.share, self.gpus, self.gpu_mb)
        if min(amounts) < 0 or self.share > WHOLE:
            raise ValueError(f"no node could have {self}")
        if not self.gpus and (self.share or self.gpu_mb):
            raise ValueError("a share or memory of no GPU")

    @property
    def milli(self) -> int:
        return self.share * self.gpus

    @property
    def is_picky(self) -> bool:
        """Some cards with enough left would still not do."""
        return self.gpus > 1 or bool(self.kinds or self.vendor or self.gpu_mb)

    @property
    def of_host(self) -> Need:
        """The part that is no GPU."""
        return Need(self.cpu_milli, self.memory_mb)

    @property
    def of_cards(self) -> Need:
        return replace(self, cpu_milli=0, memory_mb=0)

    @property
    def text(self) -> str:
        """The same for equal ones."""
        parts = {
            "cpus": self.cpu_milli,
            "memory": self.memory_mb,
            "gpus": self.gpus,
            "share": self.share,
            "gpu_memory": self.gpu_mb,
            "vendor": self.vendor,
            "kind": "|".join(sorted(self.kinds)),
        }
        return ";".join(f"{key}={value}" for key, value in parts.items() if value)


NOTHING = Need()


def read_needs(told: Mapping[str, Any] | None) -> Need:
    """What `resources` of a submitted task asks for.

    Raises:
        InvalidField: what is wrong, naming the field.
    """
    if not told:
        return NOTHING
    if unknown := told.keys() - set(_FIELDS):
        raise InvalidField(
            f"resources have no field {min(unknown)!r}; they have {', '.join(_FIELDS)}",
            field=f"resources.{min(unknown)}",
        )
    gpus, share = _gpus(told.get("gpus"))
    gpu_mb = _whole(told.get("gpu_memory_mb"), "gpu_memory_mb", _MOST_MB)
    kinds, vendor = _kinds(told.get("gpu_kind")), _vendor(told.get("gpu_vendor"))
    if not gpus and (gpu_mb or kinds or vendor):
        # Memory alone is taken beside others, but not of a card that is taken whole.
        gpus, share = 1, LEAST if gpu_mb else WHOLE
    return Need(
        cpu_milli=_milli(told.get("cpus"), "cpus", _MOST_CPUS),
        memory_mb=_whole(told.get("memory_mb"), "memory_mb", _MOST_MB),
        share=share,
        gpus=gpus,
        gpu_mb=gpu_mb,
        kinds=kinds,
        vendor=vendor,
    )


def plain(need: Need) -> dict[str, Any]:
    """As `resources` reads it."""
    gpus: float = need.gpus
    if need.gpus and need.share < WHOLE:
        gpus = need.share / WHOLE if need.share > LEAST else 0
    found = {
        "gpus": gpus,
        "gpu_memory_mb": need.gpu_mb,
        "gpu_kind": sorted(need.kinds),
        "gpu_vendor": need.vendor,
        "cpus": need.cpu_milli / WHOLE,
        "memory_mb": need.memory_mb,
    }
    return {key: value for key, value in found.items() if value}


def _number(told: Any, field: str, most: float) -> float:
    is_number = isinstance(told, int | float) and not isinstance(told, bool)
    if not is_number or not math.isfinite(told) or not 0 <= told <= most:
        raise InvalidField(
            f"{field} must be a number from 0 to {most:g}", field=f"resources.{field}"
        )
    return float(told)


def _gpus(told: Any) -> tuple[int, int]:
    """Cards, and thousandths of each: 2 is two whole ones, 0.5 half of one."""
    if told is None:
        return 0, 0
    count = _number(told, "gpus", MOST_CARDS)
    if 0 < count < 1:
        return 1, max(1, round(count * WHOLE))
    if count != int(count):
        raise InvalidField(
            "gpus must be a whole number of cards, or a part of one below 1",
            field="resources.gpus",
        )
    return int(count), WHOLE if count else 0


def _milli(told: Any, field: str, most: int) -> int:
    return 0 if told is None else math.ceil(_number(told, field, most) * WHOLE)


def _whole(told: Any, field: str, most: int) -> int:
    return 0 if told is None else math.ceil(_number(told, field, most))


def _kinds(told: Any) -> frozenset[str]:
    if not told:
        return frozenset()
    names = [told] if isinstance(told, str) else told
    is_list = isinstance(names, list | tuple) and len(names) <= _MOST_KINDS
    if not is_list or not all(_is_name(name) for name in names):
        raise InvalidField(
            f"gpu_kind must be a card's name as 'corral nodes' shows it, or a list of "
            f"at most {_MOST_KINDS}",
            field="resources.gpu_kind",
        )
    return frozenset(names)


def _is_name(told: Any) -> bool:
    if not isinstance(told, str) or not 0 < len(told) <= 128:
        return False
    return told.isprintable() and not set(told) & set("|;=")


def _vendor(told: Any) -> str:
    if not told:
        return ""
    if told not in _VENDORS:
        raise InvalidField(
            f"gpu_vendor must be one of {', '.join(_VENDORS)}",
            field="resources.gpu_vendor",
        )
    return str(told)
