"""What keeps the cluster clean: rescue, retention, unused objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from corral.manager.context import ManagerContext
from corral.manager.feature import Feature, Loop
from corral.manager.output.objects import Objects
from corral.manager.tasks import Tasks
from corral.manager.upkeep.clear_databases import Clear
from corral.manager.upkeep.rescue import Rescue
from corral.manager.upkeep.unused_objects import ObjectCleanup
from corral.manager.workers import Workers
from corral.store.base import Retention


@dataclass(frozen=True, slots=True)
class UpkeepConfig:
    """How long rows and unused objects are kept, and how long a worker may take to
    register.
    """

    keep: Retention
    keep_objects_s: float = 7 * 86400.0
    register_s: float = 60.0


class Upkeep(Feature):
    def __init__(
        self,
        ctx: ManagerContext,
        objects: Objects,
        tasks: Tasks,
        workers: Workers,
        config: UpkeepConfig,
    ) -> None:
        self._store = ctx.store
        self._clock = ctx.clock
        self._keep = config.keep
        self.rescue = Rescue(ctx, tasks, workers.registry, config.register_s)
        self.objects = ObjectCleanup(ctx, objects, config.keep_objects_s)
        self.clear = Clear(ctx, tasks, workers.registry, self.rescue).clear

    def loops(self) -> Sequence[Loop]:
        return (
            Loop("rescue", 1.0, self.rescue.step),
            Loop("prune", 600.0, self.prune),
            Loop("objects", 60.0, self.objects.step),
        )

    async def prune(self) -> None:
        """Delete what is past its time."""
        await self._store.prune(self._clock.now(), self._keep)
