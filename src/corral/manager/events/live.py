"""Events as they happen: what makes them, and who listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from corral.manager.access.keys import Access
from corral.manager.access.sessions import Tickets
from corral.manager.clock import Clock
from corral.manager.cluster.state import Cluster
from corral.manager.cluster.waiters import TaskFollowers
from corral.manager.events.broadcast import FRAME_S, Broadcast, LiveConfig
from corral.manager.events.cluster_events import LOOK_S, ClusterEvents
from corral.manager.events.history import EVENTS
from corral.manager.events.task_events import TaskEvents
from corral.manager.feature import Loop
from corral.store.base import Store

# The store with a bell and a tap: whoever follows events is woken when some were
# written, and what was asked for and done is heard by those who listen.

# Each leaves events behind, one row for a whole batch.
_WRITERS = frozenset(
    {"add_events", "insert_tasks", "place_tasks", "settle_tasks", "requeue_task"}
)


class AnnouncedStore:
    """Passes every call on; after one that writes events, `ring` is called.

    The tap hears of those calls it names, once they are done.
    """

    def __init__(self, store: Store, ring: Callable[[], None], tap: TaskEvents) -> None:
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


class LiveEvents:
    """All that is live of one manager; `attach` before its loops run."""

    def __init__(self, config: LiveConfig, clock: Clock) -> None:
        self._clock = clock
        self.broadcast = Broadcast(config, clock)
        self.tap = TaskEvents(self.broadcast, clock)
        self.tickets = Tickets(clock)

    def around(self, store: Store, bells: TaskFollowers) -> Store:
        """The store, of which is told what is written to it."""
        return AnnouncedStore(store, lambda: bells.ring(EVENTS), self.tap).seam()

    def attach(self, cluster: Cluster, access: Access) -> None:
        self.tap.find = lambda task_id: cluster.tasks.get(task_id)
        self.watching = ClusterEvents(
            self.broadcast, self.tap, cluster, access, self._clock
        )

    def loops(self, deposed: Callable[[], None]) -> tuple[Loop, Loop]:
        return (
            Loop("events", FRAME_S, self.broadcast.step, deposed),
            Loop("watching", LOOK_S, self.watching.step, deposed),
        )
