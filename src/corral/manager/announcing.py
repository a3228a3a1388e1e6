"""The store with a bell: whoever follows events is woken when some were written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from corral.store.base import Store

# Each leaves events behind, one row for a whole batch.
_WRITERS = frozenset(
    {"add_events", "insert_tasks", "place_tasks", "settle_tasks", "requeue_task"}
)


class Announcing:
    """Passes every call on; after one that writes events, `ring` is called."""

    def __init__(self, store: Store, ring: Callable[[], None]) -> None:
        self._store = store
        self._ring = ring

    def seam(self) -> Store:
        return cast(Store, self)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)
        if name not in _WRITERS:
            return call

        async def told(*args: Any, **more: Any) -> Any:
            try:
                return await call(*args, **more)
            finally:
                # Also when the answer was lost: what was asked for may be written.
                self._ring()

        return told
