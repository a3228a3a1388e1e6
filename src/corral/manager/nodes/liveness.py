"""Watches heartbeats: silent nodes become suspect, then lost, and their work goes back.

Whether work may go elsewhere is decided here; how a task goes back is not.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from corral.core.nodes.node import NodeState
from corral.core.nodes.worker import WorkerState
from corral.core.tasks.outcome import Outcome, OutcomeKind
from corral.core.tasks.task import Overlap, State
from corral.manager.cluster.state import NodeLink
from corral.manager.context import ManagerContext
from corral.manager.tasks import Tasks
from corral.manager.workers.registry import WorkerRegistry
from corral.store.base import Event, RegistryStore

log = logging.getLogger(__name__)
WATCH_S = 0.25


@dataclass(frozen=True, slots=True)
class Liveness:
    """After how many silent seconds a node is suspect, and lost.

    `register_s` is how long a worker may take to register. Tasks that must not overlap
    are killed by a cut-off agent after `no_overlap_kill_s` and given to others after
    `no_overlap_requeue_s`. Of at least `mass_loss_nodes` nodes more than
    `mass_loss_share` silent at once are taken for a fault of the network.
    """

    suspect_s: float = 15.0
    lost_s: float = 20.0
    mass_loss_nodes: int = 4
    register_s: float = 60.0
    mass_loss_share: float = 0.5
    no_overlap_kill_s: float = 15.0
    no_overlap_requeue_s: float = 25.0
    beat_s: float = 5.0

    @property
    def overdue_s(self) -> float:
        """So long silent, a node has missed a beat: beats do not come together."""
        return min(2 * self.beat_s, self.suspect_s)


class NodeWatch:
    """One look at all nodes every `WATCH_S`: never later than the settings say."""

    def __init__(
        self,
        ctx: ManagerContext,
        workers: WorkerRegistry,
        tasks: Tasks,
        liveness: Liveness,
    ) -> None:
        self._cluster = ctx.cluster
        self._store: RegistryStore = ctx.store.registry
        self._workers = workers
        self._settle = tasks.settle
        self._dispatch = tasks.dispatch
        self._clock = ctx.clock
        self._record = ctx.record
        self._liveness = liveness

    async def step(self) -> None:
        now = self._clock.monotonic()
        present = [n for n in self._cluster.nodes.values() if _is_present(n)]
        for link in present:
            is_late = now - link.seen >= self._liveness.suspect_s
            if is_late and link.node.state is NodeState.ONLINE:
                await self._suspect(link)
        # The next look may be too late by as much as lies between two of them.
        limit_s = self._liveness.lost_s - WATCH_S
        silent = [n for n in present if now - n.seen >= limit_s]
        if not await self._is_mass_loss(present, bool(silent), now):
            for link in silent:
                await self._lose(link)
        await self._requeue_kept(now)

    async def _is_mass_loss(
        self, present: Sequence[NodeLink], is_one_due: bool, now: float
    ) -> bool:
        """Most of the nodes at once: rather our own network than theirs. Hold."""
        limits = self._liveness
        missing = [n for n in present if now - n.seen >= limits.overdue_s]
        total = len(present)
        is_most = len(missing) > limits.mass_loss_share * total or (
            len(missing) == total
        )
        is_mass = total >= limits.mass_loss_nodes and is_most
        if not self._cluster.is_mass_loss:
            if is_mass and is_one_due:
                self._cluster.hold_losses(True)
                title = f"{len(missing)} of {total} nodes fell silent together; holding"
                log.critical(title)
                await self._tell(Event("mass_loss", title, "critical"))
            return self._cluster.is_mass_loss
        if not is_mass:
            self._cluster.hold_losses(False)
            # They come back one by one: the silence of the rest was not theirs
            # either, so they get the grace they get after a manager's restart.
            for link in missing:
                link.seen = now
            title = f"{total - len(missing)} of {total} nodes are back; no more holding"
            log.warning(title)
            await self._tell(Event("mass_loss_over", title))
        return True

    async def _suspect(self, link: NodeLink) -> None:
        link.node = replace(link.node, state=NodeState.SUSPECT)
        await self._store.save_node(link.node)

    async def _lose(self, link: NodeLink) -> None:
        """No heartbeats for too long: its work goes elsewhere, uncharged."""
        log.warning("node %s is lost", link.node.id)
        link.node = replace(link.node, state=NodeState.LOST)
        # Before its work goes: if we die between, the next manager finds a lost node,
        # and gives up or keeps its tasks as is done here.
        await self._store.save_node(link.node)
        # Kept before the workers are retired, which sends back all that is not kept.
        free_at = link.seen + self._liveness.no_overlap_requeue_s - WATCH_S
        for task in self._cluster.tasks.values():
            is_there = task.node_id == link.node.id and task.state is not State.QUEUED
            if is_there and task.spec.overlap is Overlap.NEVER:
                self._cluster.kept[task.id] = (task.attempt, free_at)
        for worker in self._cluster.of_node(link.node.id):
            await self._workers.retire(worker, WorkerState.LOST, is_charged=False)
        title = f"{link.node.hostname} is lost"
        await self._tell(Event("node_lost", title, "critical", link.node.id))

    async def _requeue_kept(self, now: float) -> None:
        """Tasks that must not overlap: by now their agent has killed them."""
        kept = self._cluster.kept
        due = [(id_, a) for id_, (a, free_at) in kept.items() if now >= free_at]
        if not due:
            return
        # Not to be tried again from here: when the write fails, the rescue loop finds
        # tasks that nobody has.
        for task_id, _ in due:
            del kept[task_id]
        await self._settle.settle(
            Outcome(task_id, attempt, OutcomeKind.RETURNED) for task_id, attempt in due
        )
        self._dispatch.kick()

    async def _tell(self, event: Event) -> None:
        await self._record([replace(event, at=self._clock.now())])


def _is_present(link: NodeLink) -> bool:
    is_up = link.node.state in (NodeState.ONLINE, NodeState.SUSPECT)
    return is_up and not link.is_own
