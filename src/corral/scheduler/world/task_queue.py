"""The waiting tasks of one line, next one first; removal is lazy."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from corral.core.tasks.job_type import QueueOrder
from corral.scheduler.events import WaitingTask

_Entry = tuple[int, int, str, int]
# The next few stand apart in order, so that looking at them costs nothing.
FRONT = 8


class TaskQueue:
    """Higher priority first, then submission order, unless told otherwise."""

    def __init__(self, order: QueueOrder = QueueOrder.PRIORITY) -> None:
        self.order = order
        self._front: list[_Entry] = []
        # None of these comes before the last one of the front.
        self._heap: list[_Entry] = []
        self._live: dict[str, WaitingTask] = {}
        self._counts: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._live)

    def push(self, task: WaitingTask) -> None:
        self.discard(task.task_id)
        self._live[task.task_id] = task
        self._count(task, 1)
        entry = (*self._rank(task), task.task_id, task.attempt)
        front = self._front
        if front and entry < front[-1]:
            insort(front, entry)
            if len(front) > 2 * FRONT:
                heappush(self._heap, front.pop())
        else:
            heappush(self._heap, entry)

    def _rank(self, task: WaitingTask) -> tuple[int, int]:
        if self.order is QueueOrder.PRIORITY:
            return -task.priority, task.seq
        return 0, -task.seq if self.order is QueueOrder.STACK else task.seq

    def reorder(self, order: QueueOrder) -> None:
        """Those that wait already are taken in the new order, too."""
        self.order = order
        self._rebuild()

    def _rebuild(self) -> None:
        self._front = []
        self._heap = [
            (*self._rank(t), t.task_id, t.attempt) for t in self._live.values()
        ]
        heapify(self._heap)

    def discard(self, task_id: str) -> WaitingTask | None:
        found = self._live.pop(task_id, None)
        if found is None:
            return None
        self._count(found, -1)
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._live):
            self._rebuild()
        return found

    def _is_current(self, entry: _Entry) -> bool:
        task = self._live.get(entry[2])
        return task is not None and task.attempt == entry[3]

    def front(self) -> Sequence[WaitingTask]:
        """The next tasks in order, up to FRONT of them."""
        live = self._live
        front = self._front
        if len(front) < min(FRONT, len(live)) or not all(map(self._is_current, front)):
            front = [entry for entry in front if self._is_current(entry)]
            while len(front) < FRONT and self._heap:
                entry = heappop(self._heap)
                if self._is_current(entry):
                    front.append(entry)
            self._front = front
        return [live[entry[2]] for entry in front[:FRONT]]

    def head(self) -> WaitingTask | None:
        front = self._front
        if not front or not self._is_current(front[0]):
            if not self._live:
                return None
            self.front()
            front = self._front
        return self._live[front[0][2]]

    def oldest(self) -> WaitingTask | None:
        """The one that has been here longest."""
        return next(iter(self._live.values()), None)

    def take(self, count: int, max_size: int) -> tuple[WaitingTask, ...]:
        """Remove up to `count` tasks whose sizes add up to `max_size`; one at least."""
        taken: list[WaitingTask] = []
        size = 0
        while len(taken) < count and (best := self.head()) is not None:
            size += best.size
            if taken and size > max_size:
                break
            self._front.pop(0)
            del self._live[best.task_id]
            self._count(best, -1)
            taken.append(best)
        return tuple(taken)

    def _count(self, task: WaitingTask, change: int) -> None:
        left = self._counts.get(task.priority, 0) + change
        if left:
            self._counts[task.priority] = left
        else:
            del self._counts[task.priority]

    def ahead(self, task: WaitingTask) -> int:
        """How many would be taken before this one if it came last of its priority.

        `position` is exact, but looks at every task.
        """
        if self.order is QueueOrder.STACK:
            return 0
        before = len(self._live)
        if self.order is QueueOrder.PRIORITY:
            before = sum(n for p, n in self._counts.items() if p >= task.priority)
        return max(0, before - (task.task_id in self._live))

    def position(self, task: WaitingTask) -> int:
        """How many tasks stand before this one, which may yet have to come in."""
        key = self._rank(task)
        return sum(self._rank(t) < key for t in self._live.values())

    def in_order(self) -> list[WaitingTask]:
        return sorted(self._live.values(), key=self._rank)

    def tasks(self) -> list[WaitingTask]:
        return list(self._live.values())

    def get(self, task_id: str) -> WaitingTask | None:
        return self._live.get(task_id)
