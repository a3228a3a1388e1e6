"""Puts live tasks of the store into memory: at a start, and where it fell behind."""

from __future__ import annotations

from corral.core.nodes.node import NodeState
from corral.core.tasks.task import Overlap, State, Task
from corral.manager.cluster.state import OpenOrder, WorkerLink
from corral.manager.context import ManagerContext
from corral.scheduler.events import TasksQueued

_OPEN = 2
"""As many orders a slot may have: one at work, one ahead."""


class Restore:
    """What must not overlap is free `free_after_s` after its node was last heard."""

    def __init__(self, ctx: ManagerContext, free_after_s: float) -> None:
        self._cluster = ctx.cluster
        self._clock = ctx.clock
        self._free_after_s = free_after_s

    def take_over(self, task: Task) -> bool:
        """Put a live task of the store into memory, wherever it is.

        False when no worker has it any more, and it must be given up. Then look up
        what those that wait depend on: it may have ended before.
        """
        self._cluster.count_from(task.seq)
        self._cluster.keep(task)
        if task.state is State.QUEUED:
            self.queue(task)
            return True
        node = self._cluster.nodes.get(task.node_id or "")
        if node is not None and node.node.state in (NodeState.LOST, NodeState.LEFT):
            return self._keep(task, node.seen)
        link = self._cluster.link_of(task)
        # Of this process, not of this worker: one that began anew has none of it.
        if link is None or link.worker.incarnation != task.incarnation:
            return False
        self._restore(link, task)
        self._cluster.taken(task)
        return True

    def queue(self, task: Task) -> None:
        """Let it wait, for all it depends on."""
        needs = frozenset(task.spec.depends_on)
        waiting = self._cluster.waiting(task, needs)
        self._cluster.scheduler.apply(TasksQueued((waiting,)))

    def _restore(self, link: WorkerLink, task: Task) -> None:
        """This worker holds the attempt, unless its beats say no."""
        # Which came together nobody knows: apart, none looks as if it took no slot.
        if len(link.orders) < _OPEN * link.worker.spec.concurrency:
            order = OpenOrder(f"restored {task.id}", self._clock.monotonic(), set())
            self._cluster.open_order(link, order)
        else:
            order = min(link.orders.values(), key=lambda order: len(order.left))
        order.left.add(task.id)

    def _keep(self, task: Task, seen: float) -> bool:
        """Its node was lost before we began: it may go elsewhere, unless too early."""
        if task.spec.overlap is not Overlap.NEVER:
            return False
        # After a restart `seen` is our own start: later than need be, never too early.
        free_at = seen + self._free_after_s
        self._cluster.kept[task.id] = (task.attempt, free_at)
        return True
