"""The store with a bell and a tap: whoever follows events is woken when some were
written, and what was asked for and done is heard by those who listen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from corral.manager.events.task_events import Tap
from corral.store.base import Store

# Each leaves events behind, one row for a whole batch.
_WRITERS = frozenset(
    {"add_events", "insert_tasks", "place_tasks", "settle_tasks", "requeue_task"}
)


class Announcing:
    """Passes every call on; after one that writes events, `ring` is called.

    The tap hears of those calls it names, once they are done.
    """

    def __init__(self, store: Store, ring: Callable[[], None], tap: Tap) -> None:
        self._store = store
        self._ring = ring
        self._tap = tap
        self._names = tap.names | _WRITERS

    def seam(self) -> Store:
        return cast(Store, self)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)
        if name not in self._names:
            return call

        async def told(*args: Any, **more: Any) -> Any:
            try:
                answer = await call(*args, **more)
            finally:
                # Also when the answer was lost: what was asked for may be written.
                if name in _WRITERS:
                    self._ring()
            self._tap.hear(name, (*args, *more.values()), answer)
            return answer

        return told
