"""The waiting tasks of one job type, best first; removal is lazy."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from corral.scheduler.value import Waiting

_Entry = tuple[int, int, str, int]


class TypeQueue:
    """Higher priority first, then submission order."""

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._live: dict[str, Waiting] = {}

    def __len__(self) -> int:
        return len(self._live)

    def push(self, task: Waiting) -> None:
        self._live[task.task_id] = task
        heappush(self._heap, (-task.priority, task.seq, task.task_id, task.attempt))

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
        key = (-task.priority, task.seq)
        return sum((-t.priority, t.seq) < key for t in self._live.values())

    def get(self, task_id: str) -> Waiting | None:
        return self._live.get(task_id)
