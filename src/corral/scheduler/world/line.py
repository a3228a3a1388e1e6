"""Waiting tasks that need the same: one job type, one model, the same workers."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from corral.core.nodes.labels import Constraint
from corral.core.tasks.job_type import QueueOrder
from corral.core.tasks.needs import Need
from corral.scheduler.events import WaitingTask

if TYPE_CHECKING:
    from corral.scheduler.world.fleet import WorkerGroup
    from corral.scheduler.world.share import ShareHolder


_Entry = tuple[int, int, str, int]
# The next few stand apart in order, so that looking at them costs nothing.
FRONT = 8


class TaskQueue:
    """The tasks of one line, next one first: higher priority, then submission order,
    unless told otherwise. Removal is lazy.
    """

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


Left = tuple[float, float, float, int]
"""For workers of at most this speed, from when until when, while the epoch is this."""
CRITICAL = 100
AGE_S = 600.0
"""A task's weight doubles in this time."""
HASTE_S = 300.0
"""With so much time to spare before its deadline a task's weight is twice as large."""
_STEP = 50.0**0.1
_DUE = 8


def weight_of(priority: int) -> float:
    """What a task counts against others: high is worth 50 normal ones."""
    return float(_STEP ** max(-20, min(priority, 20)))


def haste(task: WaitingTask, now: float, needs_s: float) -> float:
    """How much more a task weighs the less time is left to start it, if any is.

    One that cannot be through in time any more must not hold up those that can.
    """
    if task.deadline is None or task.deadline - now < 0.5 * needs_s:
        return 1.0
    return 1.0 + HASTE_S / max(task.deadline - now - needs_s, 1.0)


@dataclass(slots=True, eq=False, repr=False)
class TaskLine:
    """Tasks that need the same and may as much, and where they stand."""

    key: str
    job_type: str
    model: str | None
    order: InitVar[QueueOrder]
    only: str | None = None
    """The one worker that may run these, where there is only one."""
    constraint: Constraint | None = None
    buckets: tuple[ShareHolder, ...] = ()
    """Whose shares its tasks count against."""
    need: Need | None = None
    """What each task takes; None in the line of one worker, where they differ."""
    gang_size: int = 0
    """How many of its tasks start together; 0 where each goes for itself."""

    # What is in it, and what follows from that.
    queue: TaskQueue = field(init=False)
    counts_priority: bool = field(init=False)
    groups: list[WorkerGroup] = field(init=False, default_factory=list)
    is_aside: bool = field(init=False, default=False)
    """It gets nothing now: its type is paused, or a quota is used up."""
    left: Left | None = field(init=False, default=None)
    """That workers without its model leave it to those that have it, if so."""
    priority: int = field(init=False, default=0)
    """Of the task that is next."""
    since: int = field(init=False, default=0)
    """The number of the one that has been here longest."""
    waits_since: float | None = field(init=False, default=None)
    """When that one came, where that is known."""
    _sums: list[tuple[float, float]] | None = field(init=False, default=None)
    _due: list[tuple[float, str, int]] = field(init=False, default_factory=list)
    _is_hasty: bool = field(init=False, default=False)

    def __post_init__(self, order: QueueOrder) -> None:
        self.queue = TaskQueue(order)
        self.counts_priority = order is QueueOrder.PRIORITY

    def __len__(self) -> int:
        return len(self.queue)

    def _change(self) -> None:
        self._sums = None
        self.left = None

    def push(self, task: WaitingTask) -> None:
        self.queue.push(task)
        self._change()
        if task.deadline is not None:
            insort(self._due, (task.deadline, task.task_id, task.attempt))

    def discard(self, task_id: str) -> WaitingTask | None:
        self._change()
        return self.queue.discard(task_id)

    def take(self, count: int, max_size: int) -> tuple[WaitingTask, ...]:
        self._change()
        return self.queue.take(count, max_size)

    def pull(self, task_id: str) -> tuple[WaitingTask, ...]:
        """Take this one out of its turn."""
        found = self.discard(task_id)
        return (found,) if found is not None else ()

    def reorder(self, order: QueueOrder) -> None:
        self._change()
        self.counts_priority = order is QueueOrder.PRIORITY
        self.queue.reorder(order)

    def refresh(self) -> None:
        """Let what is said of the next and the oldest task be true."""
        if self._sums is None and len(self.queue):
            self._sum()

    def weight(self, count: int, now: float, needs_s: float = 0.0) -> float:
        """What the next `count` tasks weigh together at `now`.

        `needs_s` is how long one takes, for those that have a deadline.
        """
        sums = self._sums or self._sum()
        if self._is_hasty:
            near = (t for t in self._next_due() if t.priority == self.priority)
            some = {task.task_id: task for task in (*self.queue.front(), *near)}
            weights = [self.weigh(task, now, needs_s) for task in some.values()]
            return sum(sorted(weights, reverse=True)[:count])
        base, slope = sums[min(count, len(sums)) - 1]
        return base + slope * now

    def _sum(self) -> list[tuple[float, float]]:
        base = slope = 0.0
        sums = []
        front = self.queue.front()
        counts = self.counts_priority
        for task in front:
            weight = weight_of(task.priority if counts else 0)
            base += weight * (1.0 - task.arrived / AGE_S)
            slope += weight / AGE_S
            sums.append((base, slope))
        self.priority = front[0].priority if counts else 0
        oldest = self.queue.oldest()
        self.since = oldest.seq if oldest else 0
        self.waits_since = (oldest.arrived or None) if oldest else None
        self._is_hasty = bool(self._due and self._next_due())
        self._sums = sums
        return sums

    def weigh(self, task: WaitingTask, now: float, needs_s: float) -> float:
        """What one task weighs at `now`."""
        weight = weight_of(task.priority if self.counts_priority else 0)
        weight *= 1.0 + (now - task.arrived) / AGE_S
        return weight * haste(task, now, needs_s)

    def waited_s(self, now: float) -> float:
        """How long the one that has been here longest has waited."""
        self.refresh()
        return now - self.waits_since if self.waits_since is not None else 0.0

    def hasty(self, now: float, needs_s: float) -> WaitingTask | None:
        """One that a near deadline puts before the next of the same priority."""
        if not self._due or not self.counts_priority:
            return None
        head = self.queue.head()
        if head is None:
            return None
        best, most = None, self.weigh(head, now, needs_s)
        for task in self._next_due():
            is_near = haste(task, now, needs_s) >= 2.0
            if is_near and task.priority == head.priority:
                weight = self.weigh(task, now, needs_s)
                if weight > most:
                    best, most = task, weight
        return best

    def _next_due(self) -> list[WaitingTask]:
        """The few whose deadlines come first."""
        get = self.queue.get
        found: list[WaitingTask] = []
        stale = 0
        for _, task_id, attempt in self._due:
            task = get(task_id)
            if task is None or task.attempt != attempt:
                stale += 1
            else:
                found.append(task)
            if len(found) == _DUE:
                break
        if stale > _DUE or not found:
            self._due = [d for d in self._due if get(d[1]) is not None]
        return found
