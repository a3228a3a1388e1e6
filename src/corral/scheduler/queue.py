"""The waiting tasks of one job type, next one first; removal is lazy."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from corral.core.job_type import QueueOrder
from corral.scheduler.value import Waiting

_Entry = tuple[int, int, str, int]


class TypeQueue:
    """Higher priority first, then submission order, unless told otherwise."""

    def __init__(self, order: QueueOrder = QueueOrder.PRIORITY) -> None:
        self.order = order
        self._heap: list[_Entry] = []
        self._live: dict[str, Waiting] = {}

    def __len__(self) -> int:
        return len(self._live)

    def push(self, task: Waiting) -> None:
        self._live[task.task_id] = task
        heappush(self._heap, (*self._rank(task), task.task_id, task.attempt))

    def _rank(self, task: Waiting) -> tuple[int, int]:
        if self.order is QueueOrder.PRIORITY:
            return -task.priority, task.seq
        return 0, -task.seq if self.order is QueueOrder.STACK else task.seq

    def reorder(self, order: QueueOrder) -> None:
        """Those that wait already are taken in the new order, too."""
        self.order = order
        self._heap = [
            (*self._rank(t), t.task_id, t.attempt) for t in self._live.values()
        ]
        heapify(self._heap)

    def standing(self) -> tuple[int, int] | None:
        """How this queue's next task compares with those of other types.

        A stack stands where its oldest task does: by its newest, which is always
        younger than the rest, it would come last for ever.
        """
        head = self.head()
        if head is None:
            return None
        if self.order is QueueOrder.STACK:
            return 0, next(iter(self._live.values())).seq
        return self._rank(head)

    def discard(self, task_id: str) -> Waiting | None:
        found = self._live.pop(task_id, None)
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._live):
            self._heap = [e for e in self._heap if self._is_current(e)]
            heapify(self._heap)
        return found

    def _is_current(self, entry: _Entry) -> bool:
        task = self._live.get(entry[2])
        return task is not None and task.attempt == entry[3]

    def head(self) -> Waiting | None:
        while self._heap and not self._is_current(self._heap[0]):
            heappop(self._heap)
        return self._live[self._heap[0][2]] if self._heap else None

    def take(self, count: int, max_size: int) -> tuple[Waiting, ...]:
        """Remove up to `count` tasks whose sizes add up to `max_size`; one at least."""
        taken: list[Waiting] = []
        size = 0
        while len(taken) < count and (best := self.head()) is not None:
            size += best.size
            if taken and size > max_size:
                break
            heappop(self._heap)
            del self._live[best.task_id]
            taken.append(best)
        return tuple(taken)

    def position(self, task: Waiting) -> int:
        """How many tasks stand before this one, which may yet have to come in."""
        key = self._rank(task)
        return sum(self._rank(t) < key for t in self._live.values())

    def tasks(self) -> list[Waiting]:
        return list(self._live.values())

    def get(self, task_id: str) -> Waiting | None:
        return self._live.get(task_id)
