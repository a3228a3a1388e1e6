"""Where tasks with needs may go now, and what is kept free for those that wait.

A task that fits nowhere yet would wait for ever where smaller ones keep taking what is
given back. So it has a hold on the node where it should fit first: those it goes before
get nothing there. Whom it goes before is the order of all lines: critical before the
rest, late before those who came after, within a job type the higher priority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from corral.core.tasks.needs import NOTHING, Need
from corral.scheduler.events import WaitingTask
from corral.scheduler.place.capacity import NodeCapacity
from corral.scheduler.place.leases import Leases
from corral.scheduler.world.fleet import Fleet, FleetWorker
from corral.scheduler.world.line import TaskLine

_MOST_HOLDING = 32
_MOST_NODES = 512


class CapacityHolds:
    def __init__(
        self,
        leases: Leases,
        fleet: Fleet,
        needy: dict[str, TaskLine],
        tier: Callable[[TaskLine, float], int],
    ) -> None:
        self._leases = leases
        self._fleet = fleet
        self._needy = needy
        self._tier = tier
        self._held: dict[str, str] = {}
        """By node, the line that has a hold on it."""

    # what fits -------------------------------------------------------------------
    def fits(
        self, worker: FleetWorker, line: TaskLine, task: WaitingTask, now: float
    ) -> bool:
        need = task.need or NOTHING
        if self.is_blocked(worker.node_id, line, now):
            return False
        found = self._leases.find(worker.worker_id, worker.node_id, need)
        return found is not None

    def best(self, line: TaskLine, now: float) -> FleetWorker | None:
        """The worker on whose node least is lost for others."""
        need = line.need
        if need is None or line.only is not None:
            return None
        own = [
            worker
            for group in line.groups
            for worker in group.free(1)
            if self._has_own(worker, need) and self._is_open(worker, line, need, now)
        ]
        if own:
            return own[0]

        def may(room: NodeCapacity) -> bool:
            return self._on(room.name, line, need, now) is not None

        fit = self._leases.packing.choose(need, may)
        return None if fit is None else self._on(fit.node.name, line, need, now)

    def _has_own(self, worker: FleetWorker, need: Need) -> bool:
        node = self._leases.node(worker.node_id)
        return bool(need.gpus) and node is not None and worker.worker_id in node.own

    def _on(
        self, node_id: str, line: TaskLine, need: Need, now: float
    ) -> FleetWorker | None:
        """A free worker of this node that may use what all have there."""
        if self.is_blocked(node_id, line, now):
            return None
        for worker in self._fleet.of_node(node_id):
            is_able = worker.has_room and worker.group in line.groups
            if is_able and not self._has_own(worker, need):
                return worker
        return None

    def _is_open(
        self, worker: FleetWorker, line: TaskLine, need: Need, now: float
    ) -> bool:
        if not worker.has_room or self.is_blocked(worker.node_id, line, now):
            return False
        return self._leases.find(worker.worker_id, worker.node_id, need) is not None

    def places(self, line: TaskLine, now: float) -> list[FleetWorker]:
        """A worker for each of a gang, every one on a node of its own; or none."""
        if len(self.members(line)) < line.gang_size:
            return []
        need = line.need or NOTHING
        found: dict[str, FleetWorker] = {}
        for worker in self._able(line):
            if len(found) == line.gang_size:
                break
            if worker.node_id in found:
                continue
            if self._is_open(worker, line, need, now):
                found[worker.node_id] = worker
        return list(found.values()) if len(found) == line.gang_size else []

    def members(self, line: TaskLine) -> list[WaitingTask]:
        """One task for each rank of a gang, as far as they are here."""
        found: dict[int, WaitingTask] = {}
        if line.gang_size:
            for task in sorted(line.queue.tasks(), key=lambda t: t.seq):
                if task.gang is not None:
                    found.setdefault(task.gang.rank, task)
        return [found[rank] for rank in sorted(found)]

    def _able(self, line: TaskLine) -> Iterator[FleetWorker]:
        for group in line.groups:
            for worker in group.workers.values():
                is_asked = line.only in (None, worker.worker_id)
                if is_asked and not worker.is_held:
                    yield worker

    # what is kept ----------------------------------------------------------------
    def is_blocked(self, node_id: str, line: TaskLine, now: float) -> bool:
        """Is this node kept for others, whom these must let go before?"""
        holder = self._needy.get(self._held.get(node_id, ""))
        if not holder or holder is line or holder.is_aside:
            return False
        line.refresh()
        holder.refresh()
        mine, its = self._tier(line, now), self._tier(holder, now)
        if its != mine:
            # Who is late waits for critical ones alone.
            return its > mine and (its == 2 or mine == 0)
        if its == 1:
            return holder.since < line.since
        if holder.job_type == line.job_type:
            return holder.priority > line.priority
        return its == 2 and holder.since < line.since

    def keep(self, now: float) -> list[str]:
        """Give the lines that go first a hold each; nodes that are free of one now."""
        lines = [f for f in self._needy.values() if f and not f.is_aside and f.groups]
        for line in lines:
            line.refresh()
        lines.sort(key=lambda f: (-self._tier(f, now), -f.priority, f.since, f.key))
        before, self._held = self._held, {}
        for line in lines[:_MOST_HOLDING]:
            self._hold(line, before)
        return [node for node, key in before.items() if self._held.get(node) != key]

    def _hold(self, line: TaskLine, before: dict[str, str]) -> None:
        if len(self.members(line)) < line.gang_size:
            return  # it does not start before the others come, who may never
        count = max(1, line.gang_size)
        task = line.queue.head()
        need = (task.need if task is not None else None) or NOTHING
        kept = [n for n, key in before.items() if key == line.key]
        nodes = [n for n in kept if n not in self._held and self._could(n, line, need)]
        if len(nodes) < count:
            nodes += self._choose(line, need, {*nodes, *self._held}, count - len(nodes))
        if len(nodes) >= count:
            self._held |= dict.fromkeys(nodes[:count], line.key)

    def _could(self, node_id: str, line: TaskLine, need: Need) -> bool:
        return any(
            not worker.is_held
            and worker.group in line.groups
            and line.only in (None, worker.worker_id)
            and self._leases.could(worker.worker_id, node_id, need)
            for worker in self._fleet.of_node(node_id)
        )

    def _choose(
        self, line: TaskLine, need: Need, without: set[str], count: int
    ) -> list[str]:
        """Nodes that would have room if nothing ran there, those with least first."""
        leased: dict[str, int] = {}
        for lease in self._leases.by_task.values():
            leased[lease.node_id] = leased.get(lease.node_id, 0) + 1
        nodes: dict[str, None] = {}
        for worker in self._able(line):
            if worker.node_id not in without and len(nodes) < _MOST_NODES:
                nodes[worker.node_id] = None
        able = [n for n in nodes if self._could(n, line, need)]
        return sorted(able, key=lambda n: (leased.get(n, 0), n))[:count]

    def holder(self, node_id: str) -> TaskLine | None:
        """The line that has a hold on a node."""
        return self._needy.get(self._held.get(node_id, ""))
