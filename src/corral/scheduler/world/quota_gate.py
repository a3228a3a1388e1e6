"""Which lines may be given something: not those of paused types, nor over a quota."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from corral.core.access.share import DAY_S
from corral.scheduler.events import WaitingTask
from corral.scheduler.plan import Reason
from corral.scheduler.world.line import TaskLine
from corral.scheduler.world.share import GROUP_KEY, ShareHolder, Shares

_AND = "\x1e"
"""Stands before whose share the tasks of a line count against."""
_REST = "\x1d"
"""Stands before the paused type of tasks that one worker alone may run."""


class Gate:
    """Lines that are barred stand aside: no worker and no cost ever sees them."""

    def __init__(self, on_open: Callable[[TaskLine], None]) -> None:
        self.shares = Shares()
        self.paused: dict[str, None] = {}
        self._on_open = on_open

    def line_key(self, task: WaitingTask) -> str:
        """The line a task stands in: with those that need the same and may as much."""
        key = task.queue
        if self.shares.shares or task.group is not None:
            key = _AND.join((key, *self.shares.names(task)))
        if self.paused and task.worker_id and task.job_type in self.paused:
            key += _REST + task.job_type
        return key

    def buckets_of(self, task: WaitingTask) -> tuple[ShareHolder, ...]:
        if self.shares.shares or task.group is not None:
            return self.shares.of(task)
        return ()

    # lines -------------------------------------------------------------------
    def enter(self, line: TaskLine) -> None:
        """A line has its first task."""
        for bucket in line.buckets:
            bucket.lines[line.key] = line
        line.is_aside = self._is_barred(line)
        if not line.is_aside:
            self._show(line)

    def leave(self, line: TaskLine) -> None:
        """A line has no task any more."""
        if not line.is_aside:
            self._hide(line)
        line.is_aside = False
        for bucket in line.buckets:
            bucket.lines.pop(line.key, None)
            self.shares.forget(bucket)

    def look(self, lines: Iterable[TaskLine]) -> None:
        """Bar or open these lines, as it is now."""
        for line in lines:
            is_barred = self._is_barred(line)
            if not line or is_barred == line.is_aside:
                continue
            line.is_aside = is_barred
            if is_barred:
                self._hide(line)
            else:
                self._show(line)
                self._on_open(line)

    def _is_barred(self, line: TaskLine) -> bool:
        # A line of one worker has tasks of several types; those paused wait apart.
        is_of_type = line.only is None or _REST in line.key
        if self.paused and is_of_type and line.job_type in self.paused:
            return True
        return any(bucket.is_full for bucket in line.buckets)

    def _show(self, line: TaskLine) -> None:
        for group in line.groups:
            group.waiting[line.key] = line
        if line.buckets:
            self.shares.wake(line)

    def _hide(self, line: TaskLine) -> None:
        for group in line.groups:
            group.waiting.pop(line.key, None)
        if line.buckets:
            self.shares.rest(line)

    # attempts ----------------------------------------------------------------
    def begin(
        self,
        tasks: Iterable[WaitingTask],
        buckets: tuple[ShareHolder, ...],
        seconds: float,
        gpus: float,
    ) -> None:
        """Tasks of a line go to a worker; each is thought to take so long."""
        for task in tasks:
            self.shares.begin(task, buckets, seconds, gpus)
        self._look_behind(bucket for bucket in buckets if bucket.is_full)

    def end(self, task_id: str, seconds: float = 0.0) -> None:
        """A task is with no worker any more."""
        if task_id in self.shares.out:
            self._look_behind(self.shares.end(task_id, seconds))

    def roll(self, now: float) -> None:
        """Follow the day that quotas are for."""
        if self.shares.day != int(now // DAY_S):
            self._look_behind(self.shares.roll(now))

    def _look_behind(self, buckets: Iterable[ShareHolder]) -> None:
        for bucket in buckets:
            self.look(list(bucket.lines.values()))

    # answers -----------------------------------------------------------------
    def why(self, task: WaitingTask, now: float) -> Reason | None:
        """Why a task stands aside; None when it does not."""
        if task.job_type in self.paused:
            return Reason(
                "type_paused",
                f"job type '{task.job_type}' is paused: "
                f"'corral job-type resume {task.job_type}' lets it go on",
                {"job_type": task.job_type},
            )
        for name in self.shares.names(task):
            bucket = self.shares.buckets.get(name)
            if bucket is not None and bucket.is_full:
                return _full(bucket, now)
        return None


def _full(bucket: ShareHolder, now: float) -> Reason:
    name = bucket.name.partition("=")[2] if bucket.key == GROUP_KEY else bucket.name
    word = "group" if bucket.key == GROUP_KEY else "share"
    if bucket.is_spent:
        quota_s, wait_s = bucket.gpu_quota_s, DAY_S - now % DAY_S
        return Reason(
            "quota",
            f"{word} {name} has its {quota_s:g} GPU-seconds of today; "
            f"it goes on at midnight UTC, in {wait_s / 3600:.1f} h",
            {
                word: name,
                "gpu_seconds_per_day": quota_s,
                "gpu_seconds_used": round(bucket.gpu_used_s, 3),
                "starts_in_s": round(wait_s, 1),
            },
        )
    return Reason(
        "quota",
        f"{word} {name} runs {bucket.running} of at most {bucket.max_running} "
        "task(s) at once",
        {word: name, "running": bucket.running, "max_running": bucket.max_running},
    )
