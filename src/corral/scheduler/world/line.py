"""Waiting tasks that need the same: one job type, one model, the same workers."""

from __future__ import annotations

from bisect import insort
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING

from corral.core.tasks.job_type import QueueOrder
from corral.core.tasks.needs import Need
from corral.core.tasks.options import Constraint
from corral.scheduler.events import WaitingTask
from corral.scheduler.world.task_queue import TaskQueue

if TYPE_CHECKING:
    from corral.scheduler.world.fleet import WorkerGroup
    from corral.scheduler.world.share import ShareHolder

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
