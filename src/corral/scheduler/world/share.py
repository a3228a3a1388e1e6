"""Who has had how much of the cluster, and who may have more: shares and quotas.

Everything is counted in seconds of work. Of those who wait, the one that has had the
least for its weight is behind by nothing; how far another is ahead of it is its debt.
Who comes back after a pause begins where the others are: nobody saves up. Tasks that
no share and no group speaks of are never seen here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from corral.core.access.share import DAY_S, EACH, OWNER, Share
from corral.scheduler.events import WaitingTask

if TYPE_CHECKING:
    from corral.scheduler.world.line import TaskLine

GROUP_KEY = "@group"
_MANY = 1024


@dataclass(slots=True, eq=False)
class ShareHolder:
    """One owner, one value of a label, or one group of tasks."""

    name: str
    key: str
    weight: float = 1.0
    max_running: int | None = None
    gpu_quota_s: float | None = None
    running: int = 0
    spent_s: float = 0.0
    """Seconds of work it has had, over its weight."""
    gpu_used_s: float = 0.0
    """Today, of what has ended."""
    gpu_reserved_s: float = 0.0
    """What those that run are thought to take."""
    lines: dict[str, TaskLine] = field(default_factory=dict)
    """Where tasks of it wait."""
    active: int = 0
    """How many of these lines may be given something."""

    @property
    def is_full(self) -> bool:
        if self.max_running is not None and self.running >= self.max_running:
            return True
        return self.is_spent

    @property
    def is_spent(self) -> bool:
        """Its day is over."""
        used_s = self.gpu_used_s + self.gpu_reserved_s
        return self.gpu_quota_s is not None and used_s >= self.gpu_quota_s

    def room(self, gpu_s: float) -> float:
        """How many tasks of so many GPU-seconds it may be given; one at least."""
        most = float("inf")
        if self.max_running is not None:
            most = self.max_running - self.running
        if self.gpu_quota_s is not None and gpu_s > 0:
            left_s = self.gpu_quota_s - self.gpu_used_s - self.gpu_reserved_s
            most = min(most, left_s / gpu_s)
        return max(1.0, most)


@dataclass(frozen=True, slots=True)
class AttemptUse:
    """An attempt that is with a worker, as far as shares go."""

    task: WaitingTask
    buckets: tuple[ShareHolder, ...]
    seconds: float
    """What it is thought to take, and was counted with."""
    gpus: float


class Shares:
    def __init__(self) -> None:
        self.shares: dict[str, Share] = {}
        self.buckets: dict[str, ShareHolder] = {}
        self.out: dict[str, AttemptUse] = {}
        """By task, what is with workers."""
        self.day = 0
        # Of each key: is it shared by weight?
        self._keys: dict[str, bool] = {}
        # Of each key: buckets by what they have had; those that have had more since, or
        # wait no more, are dropped when they come up.
        self._least: dict[str, list[tuple[float, str]]] = {}
        self._floors: dict[str, float] = {}

    # what there is -----------------------------------------------------------
    def set(self, share: Share) -> None:
        self.shares[share.name] = share
        self._set_keys()

    def drop(self, name: str) -> None:
        self.shares.pop(name, None)
        self._set_keys()

    def _set_keys(self) -> None:
        self._keys = {}
        for share in self.shares.values():
            is_fair = self._keys.get(share.key, False) or share.weight is not None
            self._keys[share.key] = is_fair
        for bucket in self.buckets.values():
            self._set_limits(bucket)

    def _share_of(self, key: str, value: str) -> Share | None:
        found = self.shares.get(f"{key}={value}")
        return found or (self.shares.get(f"{key}={EACH}") if value else None)

    def _set_limits(self, bucket: ShareHolder) -> None:
        if bucket.key == GROUP_KEY:
            return
        value = bucket.name.partition("=")[2]
        share = self._share_of(bucket.key, value) or Share(bucket.name)
        bucket.weight = share.weight or 1.0
        bucket.max_running = share.max_running
        bucket.gpu_quota_s = share.gpu_seconds_per_day

    def names(self, task: WaitingTask) -> tuple[str, ...]:
        """The buckets a task counts in."""
        found = []
        for key, is_fair in self._keys.items():
            value = task.owner if key == OWNER else (task.labels or {}).get(key, "")
            if is_fair or self._share_of(key, value) is not None:
                found.append(f"{key}={value}")
        if task.group is not None:
            found.append(f"{GROUP_KEY}={task.owner}/{task.group}")
        return tuple(found)

    def of(self, task: WaitingTask) -> tuple[ShareHolder, ...]:
        return tuple(self._bucket(name, task) for name in self.names(task))

    def _bucket(self, name: str, task: WaitingTask) -> ShareHolder:
        bucket = self.buckets.get(name)
        if bucket is None:
            if len(self.buckets) >= _MANY:
                self._sweep()
            bucket = self.buckets[name] = ShareHolder(name, name.partition("=")[0])
            bucket.spent_s = self._floors.get(bucket.key, 0.0)
            self._set_limits(bucket)
        if bucket.key == GROUP_KEY:
            bucket.max_running = task.group_limit
        return bucket

    def _sweep(self) -> None:
        """Forget those of whom there is nothing to remember."""
        for name, bucket in list(self.buckets.items()):
            is_owed = bucket.spent_s > self._floors.get(bucket.key, 0.0)
            if bucket.key == GROUP_KEY:
                is_owed = False
            if not (bucket.lines or bucket.running or bucket.gpu_used_s or is_owed):
                del self.buckets[name]

    def forget(self, bucket: ShareHolder) -> None:
        """A group is gone with the last of its tasks."""
        if bucket.key == GROUP_KEY and not bucket.lines and not bucket.running:
            self.buckets.pop(bucket.name, None)

    # who waits ---------------------------------------------------------------
    def wake(self, line: TaskLine) -> None:
        """This line may be given something from now on."""
        for bucket in line.buckets:
            bucket.active += 1
            if bucket.active == 1:
                bucket.spent_s = max(bucket.spent_s, self._floor(bucket.key))
                self._file(bucket)

    def rest(self, line: TaskLine) -> None:
        for bucket in line.buckets:
            bucket.active -= 1

    def _file(self, bucket: ShareHolder) -> None:
        if self._keys.get(bucket.key) and bucket.active:
            least = self._least.setdefault(bucket.key, [])
            heappush(least, (bucket.spent_s, bucket.name))

    def _floor(self, key: str) -> float:
        """What the one who has had least of those who wait has had."""
        least = self._least.get(key, [])
        while least:
            spent_s, name = least[0]
            bucket = self.buckets.get(name)
            if bucket is not None and bucket.active and bucket.spent_s == spent_s:
                self._floors[key] = spent_s
                return spent_s
            heappop(least)
        return self._floors.get(key, 0.0)

    def debt_s(self, line: TaskLine) -> float:
        """How far its owner is ahead of whoever has had the least."""
        fair = (b for b in line.buckets if self._keys.get(b.key))
        return max((b.spent_s - self._floor(b.key) for b in fair), default=0.0)

    # who works ---------------------------------------------------------------
    def begin(
        self,
        task: WaitingTask,
        buckets: tuple[ShareHolder, ...],
        seconds: float,
        gpus: float,
    ) -> None:
        """A task of these buckets goes to a worker with so many GPUs."""
        self.out[task.task_id] = AttemptUse(task, buckets, seconds, gpus)
        for bucket in buckets:
            bucket.running += 1
            bucket.gpu_reserved_s += seconds * gpus
            self._charge(bucket, seconds, gpus)

    def end(self, task_id: str, seconds: float) -> tuple[ShareHolder, ...]:
        """It is there no more; the buckets that are full, or not so, by that."""
        use = self.out.pop(task_id, None)
        changed = []
        for bucket in use.buckets if use else ():
            assert use is not None
            was_full = bucket.is_full
            bucket.running -= 1
            reserved_s = bucket.gpu_reserved_s - use.seconds * use.gpus
            bucket.gpu_reserved_s = reserved_s if bucket.running else 0.0
            bucket.gpu_used_s += seconds * use.gpus
            self._charge(bucket, seconds - use.seconds, use.gpus)
            if was_full is not bucket.is_full:
                changed.append(bucket)
            self.forget(bucket)
        return tuple(changed)

    def _charge(self, bucket: ShareHolder, seconds: float, gpus: float) -> None:
        bucket.spent_s += seconds * max(1.0, gpus) / bucket.weight
        self._file(bucket)

    def recount(self) -> None:
        """Count anew who works, after shares have changed."""
        for bucket in self.buckets.values():
            bucket.running = 0
            bucket.gpu_reserved_s = 0.0
        old, self.out = self.out, {}
        for task_id, use in old.items():
            if buckets := self.of(use.task):
                self.out[task_id] = replace(use, buckets=buckets)
            for bucket in buckets:
                bucket.running += 1
                bucket.gpu_reserved_s += use.seconds * use.gpus

    # days --------------------------------------------------------------------
    def roll(self, now: float) -> list[ShareHolder]:
        """A new day begins at midnight UTC; the buckets that are free again."""
        day = int(now // DAY_S)
        if day == self.day:
            return []
        spent = [b for b in self.buckets.values() if b.is_spent]
        for bucket in self.buckets.values() if self.day else ():
            bucket.gpu_used_s = 0.0
        self.day = day
        return [b for b in spent if not b.is_full]

    def next_day(self) -> float | None:
        """When a new day lets somebody go on; None where nobody waits for it."""
        is_waited = any(b.is_spent and b.lines for b in self.buckets.values())
        return float((self.day + 1) * DAY_S) if is_waited else None

    def used(self) -> Iterable[tuple[str, float]]:
        """The GPU-seconds of today, by bucket, where a quota counts them."""
        for bucket in self.buckets.values():
            if bucket.gpu_quota_s is not None:
                yield bucket.name, bucket.gpu_used_s

    def restore(self, name: str, day: int, gpu_s: float) -> None:
        if self.day and day != self.day:
            return
        self.day = day
        key, _, value = name.partition("=")
        owner, labels = (value, None) if key == OWNER else ("", {key: value})
        task = WaitingTask("", 0, "", 0, owner=owner, labels=labels)
        if name in self.names(task):
            self._bucket(name, task).gpu_used_s += gpu_s
