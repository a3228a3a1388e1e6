"""Lines that were left to others, and when to look at them again whatever happens."""

from __future__ import annotations

from collections.abc import Iterable


class Again:
    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self.first: float | None = None
        """When the next of them is to be looked at, or a little before."""

    def set(self, key: str, at: float) -> None:
        self._at[key] = at
        if self.first is None or at < self.first:
            self.first = at

    def add(self, keys: Iterable[str], at: float) -> None:
        """Those that are not to be looked at already."""
        known = self._at
        for key in [key for key in keys if key not in known]:
            self.set(key, at)

    def due(self, now: float) -> list[str]:
        """Those whose time has come; they are forgotten here."""
        if self.first is None or self.first > now:
            return []
        found = [key for key, at in self._at.items() if at <= now]
        for key in found:
            del self._at[key]
        self.first = min(self._at.values(), default=None)
        return found
