"""Carries out what the scheduler says of models: those that should be elsewhere, and
those that will be asked for. It decides neither.

A model is loaded where it goes before it is dropped where it was, so that nobody waits
for it meanwhile. What is under way when the manager ends is not taken up again: a load
that was asked for still happens, and the former copy stays.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corral.core.tasks.priority import PRIORITY_WORDS
from corral.errors import Conflict, CorralError, WorkerNotFound
from corral.manager.clock import new_id
from corral.manager.context import ManagerContext
from corral.manager.feature import Loop
from corral.manager.models.memory import ModelMemory
from corral.scheduler.models.rebalance import Move, Strategy, duration_s
from corral.store.base import Event

log = logging.getLogger(__name__)
_PERIOD_S = 0.5
_LOW = PRIORITY_WORDS["low"]
_GRACE_S = 10.0
"""A worker's word may come later than the end of the task that loaded."""
_PREFETCH_PERIOD_S = 0.2
OWNER = "corral.prefetch"


@dataclass(frozen=True, slots=True)
class Rebalance:
    """`status` is initiated, dry_run or balanced: there is nothing to move."""

    rebalance_id: str
    status: str
    moves: tuple[Move, ...]
    estimated_s: float

    @property
    def workers(self) -> list[str]:
        ends = ((move.from_worker, move.to_worker) for move in self.moves)
        return sorted({worker_id for pair in ends for worker_id in pair})


@dataclass(slots=True)
class _Underway:
    move: Move
    unseen_since: float | None = None
    """Since when there is neither the load nor the model."""


class Rebalancer:
    def __init__(self, ctx: ManagerContext, models: ModelMemory) -> None:
        self._cluster = ctx.cluster
        self._models = models
        self._clock = ctx.clock
        self._record = ctx.record
        self._id = ""
        self._left: list[_Underway] = []
        self._done = self._failed = 0

    async def rebalance(
        self, strategy: Strategy, by: str, *, force: bool = False, dry_run: bool = False
    ) -> Rebalance:
        """Decide what goes where, and begin with it unless it is a dry run.

        Raises:
            Conflict: the last one is not through.
        """
        if self._left and not dry_run:
            raise Conflict(
                f"rebalance {self._id} is under way, {len(self._left)} move(s) are "
                "left: try again when it is through"
            )
        now = self._clock.now().timestamp()
        moves = self._cluster.scheduler.rebalance(now, strategy, force=force)
        status = "dry_run" if dry_run else "initiated" if moves else "balanced"
        found = Rebalance(new_id("r"), status, moves, duration_s(moves))
        if moves and not dry_run:
            await self._begin(found, strategy, by)
        return found

    async def _begin(self, found: Rebalance, strategy: Strategy, by: str) -> None:
        self._id, self._done, self._failed = found.rebalance_id, 0, 0
        self._left = [_Underway(move) for move in found.moves]
        facts = {"strategy": str(strategy), "by": by, "operations": rows(found.moves)}
        words = f"{len(found.moves)} model(s) go to other workers"
        await self._tell("started", words, facts)
        for underway in list(self._left):
            move = underway.move
            try:
                await self._models.assign(move.model, [move.to_worker], priority=_LOW)
            except CorralError as e:
                await self._fail(underway, e.message)

    # the loop ----------------------------------------------------------------
    def loop(self) -> Loop:
        return Loop("rebalancing", _PERIOD_S, self.step)

    async def step(self) -> None:
        """Drop what has arrived elsewhere, and give up what never will."""
        for underway in list(self._left):
            await self._follow(underway)

    async def _follow(self, underway: _Underway) -> None:
        move = underway.move
        target = self._cluster.workers.get(move.to_worker)
        if target is None:
            await self._fail(underway, f"worker {move.to_worker} is gone")
        elif move.model in target.shelf.held:
            await self._finish(underway)
        elif move.model in self._models.of_worker(target):
            underway.unseen_since = None
        elif underway.unseen_since is None:
            underway.unseen_since = self._clock.monotonic()
        elif self._clock.monotonic() - underway.unseen_since >= _GRACE_S:
            await self._fail(underway, "it could not be loaded there")

    async def _finish(self, underway: _Underway) -> None:
        move = underway.move
        self._left.remove(underway)
        if not move.is_copy:
            # Pinned meanwhile, or gone with its worker: it is where it should be.
            with contextlib.suppress(Conflict, WorkerNotFound):
                await self._models.unload(move.model, [move.from_worker])
        self._done += 1
        await self._end()

    async def _fail(self, underway: _Underway, why: str) -> None:
        move = underway.move
        self._left.remove(underway)
        self._failed += 1
        words = f"model {move.model} does not go to {move.to_worker}: {why}"
        await self._tell("move_failed", words, {"operations": rows([move])}, "warning")
        await self._end()

    async def _end(self) -> None:
        if not self._left:
            words = f"{self._done} model(s) are where they should be"
            facts = {"moved": self._done, "failed": self._failed}
            await self._tell("finished", words, facts)

    async def _tell(
        self, what: str, title: str, facts: Mapping[str, object], severity: str = "info"
    ) -> None:
        data = {"rebalance_id": self._id, **facts}
        event = Event(
            f"cluster_rebalance_{what}",
            title,
            severity,
            data=data,
            at=self._clock.now(),
        )
        await self._record([event])


class Prefetcher:
    """Loads models before anybody asks, when the scheduler says that it pays."""

    def __init__(self, ctx: ManagerContext, models: ModelMemory) -> None:
        self._cluster = ctx.cluster
        self._models = models
        self._clock = ctx.clock

    def loop(self) -> Loop:
        return Loop("prefetching", _PREFETCH_PERIOD_S, self.step)

    async def step(self) -> None:
        """Ask for the loads that are due."""
        now = self._clock.now().timestamp()
        for load in self._cluster.scheduler.prefetch(now).loads:
            try:
                await self._models.assign(
                    load.model, [load.worker_id], priority=_LOW, by=OWNER
                )
            except CorralError as e:
                # It is missed by nobody yet; a task that wants it loads it.
                log.warning("prefetch of %s: %s", load.model, e.message)


def rows(moves: Sequence[Move]) -> list[dict[str, Any]]:
    """Moves as callers and events are told of them."""
    return [
        {
            "type": "model_copy" if move.is_copy else "model_migration",
            "from_worker": move.from_worker,
            "to_worker": move.to_worker,
            "model": move.model,
            "saves_s": round(move.saves_s, 3),
            "costs_s": round(move.costs_s, 3),
        }
        for move in moves
    ]
