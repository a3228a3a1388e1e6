"""Which Redis and Valkey servers have the fixes that a Corral cluster stands on.

Nodes run other people's code and speak to this server. What is older has holes in its
scripts and its HyperLogLogs that lead from a node's connection to the manager's machine
(CVE-2024-46981, CVE-2025-32023, CVE-2025-49844).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# The first version of each line with all fixes. A line above the last is younger than
# they are; one that is not listed gets none any more.
_FIRST_SAFE = {
    "Redis": ("7.2.11", "7.4.6", "8.0.4", "8.2.2"),
    "Valkey": ("7.2.11", "8.0.6", "8.1.4", "9.0.0"),
}
_NUMBER = re.compile(r"(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?")
_PROGRAM = re.compile(r"(Redis|Valkey)\b.*?\bv=(\d[\w.-]*)")

Number = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class RedisVersion:
    """`server` is Redis or Valkey; `number` is empty where it was not told."""

    server: str
    number: str

    def __str__(self) -> str:
        return f"{self.server} {self.number}"

    @property
    def is_known(self) -> bool:
        return _read(self.number) is not None

    @property
    def is_safe(self) -> bool:
        """Has it all fixes, by its number? A distribution may have put them in."""
        own = _read(self.number)
        if own is None:
            return False
        floors = [_parse(text) for text in _FIRST_SAFE[self.server]]
        for floor in floors:
            if own[:2] == floor[:2]:
                return own >= floor
        return own > floors[-1]

    @property
    def floors(self) -> str:
        """The versions that would do, in words."""
        *others, last = _FIRST_SAFE[self.server]
        return f"{', '.join(others)}, {last} or newer"


def told_version(facts: dict[str, object]) -> RedisVersion:
    """By what INFO says. Valkey calls itself Redis 7.2.4 there, for old clients."""
    valkey = facts.get("valkey_version")
    if valkey:
        return RedisVersion("Valkey", str(valkey))
    return RedisVersion("Redis", str(facts.get("redis_version", "")))


def program_version(said: str) -> RedisVersion | None:
    """By what a program says to `--version`; None for one that is neither."""
    found = _PROGRAM.search(said)
    return RedisVersion(found[1], found[2]) if found else None


def _read(text: str) -> Number | None:
    found = _NUMBER.match(text)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def _parse(text: str) -> Number:
    major, minor, patch = text.split(".")
    return int(major), int(minor), int(patch)
