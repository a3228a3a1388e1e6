"""Priorities of tasks: numbers, and words for the usual ones."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from corral.errors import InvalidField

PRIORITY_WORDS: Mapping[str, int] = MappingProxyType(
    {"low": -10, "normal": 0, "high": 10, "critical": 100}
)
PRIORITY_LIMIT = 1_000_000


def parse_priority(value: int | str) -> int:
    """Turn a priority word or integer into the integer; higher runs first."""
    if isinstance(value, str):
        if value in PRIORITY_WORDS:
            return PRIORITY_WORDS[value]
        raise InvalidField(
            f"priority {value!r} is not one of {', '.join(PRIORITY_WORDS)} "
            "or an integer",
            field="priority",
        )
    if isinstance(value, bool) or abs(value) > PRIORITY_LIMIT:
        raise InvalidField(
            f"priority must be an integer within ±{PRIORITY_LIMIT}", field="priority"
        )
    return value
