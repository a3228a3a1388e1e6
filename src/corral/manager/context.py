"""What every feature of the manager may have. No feature is named here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from corral.engine.base import Engine
from corral.manager.clock import Clock
from corral.manager.cluster.state import Cluster
from corral.manager.counters import Counters
from corral.manager.signals import EventsAdded, Signals
from corral.manager.tracing import Tracing
from corral.store.base import Event, Store
from corral.store.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class ManagerContext:
    """`cluster` is the leader's memory; `secret` is what all other keys are made of."""

    store: Store
    engine: Engine
    objects: ObjectStore
    clock: Clock
    cluster: Cluster
    signals: Signals
    counters: Counters
    tracing: Tracing
    secret: bytes

    async def record(self, events: Sequence[Event]) -> None:
        """Put events into the history, and tell who follows them."""
        with self.signals.writing() as tell:
            await self.store.events.add_events(events)
            tell(EventsAdded(events))
