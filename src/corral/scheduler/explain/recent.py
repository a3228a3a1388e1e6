"""A memory of the last things noted by name, with a bound and without bookkeeping."""

from __future__ import annotations

from typing import Generic, TypeVar

V = TypeVar("V")


class Recent(Generic[V]):
    """Keeps at least half of `most`: the older half goes as a whole, which is cheap."""

    def __init__(self, most: int) -> None:
        self._half = max(1, most // 2)
        self._young: dict[str, V] = {}
        self._old: dict[str, V] = {}

    def emptied(self) -> Recent[V]:
        """One that is as large, for who wants to know what is decided, not why."""
        return Recent(2 * self._half)

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def note(self, name: str, value: V) -> None:
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}
        self._young[name] = value

    def get(self, name: str) -> V | None:
        found = self._young.get(name)
        return found if found is not None else self._old.get(name)

    def pop(self, name: str) -> V | None:
        found = self._young.pop(name, None)
        old = self._old.pop(name, None)
        return found if found is not None else old
