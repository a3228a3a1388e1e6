"""Live events, and those that were kept."""

from __future__ import annotations

from collections.abc import Sequence

from corral.core.access.key import Key
from corral.manager.access import Access
from corral.manager.access.sessions import Tickets
from corral.manager.context import ManagerContext
from corral.manager.events.broadcast import FRAME_S, Broadcast
from corral.manager.events.cluster_events import LOOK_S, ClusterEvents
from corral.manager.events.history import EVENTS, EventHistory
from corral.manager.events.listener import LiveConfig
from corral.manager.events.task_events import TaskEvents
from corral.manager.feature import Feature, Loop


class Events(Feature):
    """`history` is what was written; `broadcast` what happens, for who listens."""

    def __init__(self, ctx: ManagerContext, access: Access, config: LiveConfig) -> None:
        self.history = EventHistory(ctx)
        self.broadcast = Broadcast(config, ctx.clock)
        self.tickets: Tickets[Key] = Tickets(ctx.clock)
        task_events = TaskEvents(ctx, self.broadcast)
        self.cluster_events = ClusterEvents(
            ctx, self.broadcast, task_events, access.keys
        )
        followers = ctx.cluster.followers
        ctx.signals.events_due.listen(lambda: followers.ring(EVENTS))

    def loops(self) -> Sequence[Loop]:
        return (
            Loop("events", FRAME_S, self.broadcast.step),
            Loop("cluster events", LOOK_S, self.cluster_events.step),
        )

    def release(self) -> None:
        self.broadcast.release()
