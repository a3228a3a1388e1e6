"""Events as they happen: what makes them, and who listens."""

from __future__ import annotations

from collections.abc import Callable

from corral.manager.access.keys import Access
from corral.manager.access.ticket import Tickets
from corral.manager.clock import Clock
from corral.manager.cluster.state import Cluster
from corral.manager.events.announcing import Announcing
from corral.manager.events.broadcast import FRAME_S, Broadcast, LiveConfig
from corral.manager.events.cluster_events import LOOK_S, Watching
from corral.manager.events.history import EVENTS
from corral.manager.events.task_events import Tap
from corral.manager.feature import Loop
from corral.manager.output.logs import Bells
from corral.store.base import Store


class Live:
    """All that is live of one manager; `attach` before its loops run."""

    def __init__(self, config: LiveConfig, clock: Clock) -> None:
        self._clock = clock
        self.broadcast = Broadcast(config, clock)
        self.tap = Tap(self.broadcast, clock)
        self.tickets = Tickets(clock)

    def around(self, store: Store, bells: Bells) -> Store:
        """The store, of which is told what is written to it."""
        return Announcing(store, lambda: bells.ring(EVENTS), self.tap).seam()

    def attach(self, cluster: Cluster, access: Access) -> None:
        self.tap.find = lambda task_id: cluster.tasks.get(task_id)
        self.watching = Watching(self.broadcast, self.tap, cluster, access, self._clock)

    def loops(self, deposed: Callable[[], None]) -> tuple[Loop, Loop]:
        return (
            Loop("events", FRAME_S, self.broadcast.step, deposed),
            Loop("watching", LOOK_S, self.watching.step, deposed),
        )
