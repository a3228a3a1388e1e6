"""Commands run beside a running script: asked for here, run by the script's worker.

The worker learns of one in the answer to its next report, which the bell makes it send
at once, and posts what it prints. All of it is in memory: a manager that starts again
knows none of them, and workers end those that are not known.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from corral.core.tasks.task import State, Task
from corral.errors import (
    Conflict,
    EngineUnavailable,
    NotFound,
    TaskNotFound,
    Unavailable,
)
from corral.manager.clock import new_id
from corral.manager.cluster.state import WorkerLink
from corral.manager.cluster.waiters import LongPoll
from corral.manager.context import ManagerContext
from corral.store.base import TaskStore
from corral.wire.orders import ExecRequest

Chunk = tuple[str, bytes]
SCRIPT_CLASS = "RunScriptWorker"
MOST = 64
BEGIN_S = 10.0
BUFFER_BYTES = 1 << 20
HOLD_S = 5.0
DESERTED_S = 30.0
LOST_S = 10.0
ENDED_S = 3.0
KEEP_S = 60.0
_LOOK_S = 1.0


@dataclass(slots=True)
class Exec:
    """One command; `chunks` are those its reader has not taken yet."""

    id: str
    task_id: str
    attempt: int
    worker_id: str
    read_at: float
    heard_at: float
    number: int = 0
    chunks: list[Chunk] = field(default_factory=list)
    size: int = 0
    taken: int = 0
    readers: int = 0
    exit_code: int | None = None
    error: str | None = None
    is_ended: bool = False
    is_stopped: bool = False
    changed: LongPoll = field(default_factory=LongPoll)

    def take(self, count: int) -> None:
        """The reader has every chunk before this one."""
        gone = self.chunks[: max(0, count - self.taken)]
        del self.chunks[: len(gone)]
        self.taken += len(gone)
        self.size -= sum(len(data) for _, data in gone)

    def end(self, exit_code: int | None, error: str | None) -> None:
        self.exit_code, self.error, self.is_ended = exit_code, error, True
        self.changed.ring()


@dataclass(frozen=True, slots=True)
class ExecUpdate:
    """What the worker says of a command."""

    number: int
    chunks: Sequence[Chunk] = ()
    exit_code: int | None = None
    error: str | None = None


class Execs:
    def __init__(self, ctx: ManagerContext) -> None:
        self._cluster = ctx.cluster
        self._store: TaskStore = ctx.store.tasks
        self._engine = ctx.engine
        self._clock = ctx.clock
        self._all: dict[str, Exec] = {}

    async def start(self, task_id: str, command: Sequence[str]) -> Exec:
        """Have a command run beside a script; returns when it runs.

        Raises:
            TaskNotFound: there is no such task.
            Conflict: it does not run, is no script, or the command cannot be run.
            Unavailable: its worker does not answer.
        """
        task, link = await self._target(task_id)
        self._sweep()
        if len(self._all) >= MOST:
            raise Conflict(f"{MOST} commands run already: wait for one to end")
        now = self._clock.monotonic()
        run = Exec(new_id("x"), task.id, task.attempt, link.id, now, now)
        self._all[run.id] = run
        link.execs[run.id] = ExecRequest(
            run.task_id, run.attempt, run.id, list(command)
        )
        try:
            await self._begin(run)
        except BaseException:
            self._all.pop(run.id, None)
            raise
        finally:
            link.execs.pop(run.id, None)
        return run

    async def _target(self, task_id: str) -> tuple[Task, WorkerLink]:
        task = self._cluster.tasks.get(task_id)
        if task is None:
            stored = await self._store.get_task(task_id)
            if stored is None:
                raise TaskNotFound(f"no task {task_id!r}", task_id=task_id)
            raise Conflict(f"task {task_id} has already ended as {stored.state}")
        link = self._cluster.workers.get(task.worker_id or "")
        if task.state is State.QUEUED:
            raise Conflict(f"task {task_id} is queued: it does not run yet")
        if link is None or not _runs_scripts(link):
            raise Conflict(
                f"task {task_id} is no script but a task of type "
                f"{task.spec.job_type!r}: commands run beside scripts only"
            )
        return task, link

    async def _begin(self, run: Exec) -> None:
        async def has_begun() -> bool:
            if run.number or run.is_ended:
                return True
            if not self._is_current(run):
                raise Conflict(f"task {run.task_id} has ended")
            with contextlib.suppress(EngineUnavailable):
                await self._engine.ring([run.worker_id])
            return bool(run.number)

        await run.changed.poll(has_begun, bool, BEGIN_S, _LOOK_S)
        if not run.number:
            raise Unavailable("the task's worker does not answer; try again")
        if run.is_ended and run.exit_code is None:
            raise Conflict(run.error or "the command cannot be run")

    async def hear(self, link: WorkerLink, exec_id: str, word: ExecUpdate) -> bool:
        """Take what a worker says of a command; should it be stopped?

        Raises:
            NotFound: nobody wants that command.
        """
        run = self._all.get(exec_id)
        if run is None or run.worker_id != link.id:
            raise NotFound(f"no command {exec_id!r}", exec_id=exec_id)
        run.heard_at = self._clock.monotonic()
        if word.number > run.number and not run.is_ended:
            run.number = word.number
            run.chunks.extend(word.chunks)
            run.size += sum(len(data) for _, data in word.chunks)
            if word.exit_code is not None or word.error is not None:
                run.end(word.exit_code, word.error)
            run.changed.ring()
        await self._hold(run)
        return run.is_stopped or self._is_deserted(run)

    async def _hold(self, run: Exec) -> None:
        """Answer a worker late while the reader is slow: that holds the command."""

        async def has_room() -> bool:
            return run.size <= BUFFER_BYTES or run.is_stopped

        await run.changed.poll(has_room, bool, HOLD_S)

    async def read(
        self, task_id: str, exec_id: str, after: int, wait_s: float
    ) -> tuple[Exec, Sequence[Chunk]]:
        """The chunks after the first `after`, as soon as there are any, or its end."""
        run = self._find(task_id, exec_id)
        run.take(after)
        run.changed.ring()  # there may be room now

        async def is_there() -> bool:
            # A worker that has gone says nothing that would ring.
            self._judge(run)
            return bool(run.chunks) or run.is_ended or run.is_stopped

        run.readers += 1
        try:
            await run.changed.poll(is_there, bool, wait_s, _LOOK_S)
        finally:
            run.readers -= 1
            run.read_at = self._clock.monotonic()
        return run, tuple(run.chunks)

    def stop(self, task_id: str, exec_id: str) -> None:
        """End a command; its worker hears of it within a second."""
        run = self._find(task_id, exec_id)
        run.is_stopped = True
        run.changed.ring()

    def release(self) -> None:
        """Answer everybody now: this manager ends, and with it all commands."""
        for run in self._all.values():
            run.is_stopped = True
            if not run.is_ended:
                run.end(None, "Corral is being stopped, and the command with it")

    def _find(self, task_id: str, exec_id: str) -> Exec:
        run = self._all.get(exec_id)
        if run is None or run.task_id != task_id:
            raise NotFound(
                f"no command {exec_id!r} of this task: it ended a while ago, or was "
                "ended when Corral was started again",
                exec_id=exec_id,
            )
        return run

    def _is_current(self, run: Exec) -> bool:
        task = self._cluster.tasks.get(run.task_id)
        return task is not None and task.attempt == run.attempt

    def _is_deserted(self, run: Exec) -> bool:
        silent_s = self._clock.monotonic() - run.read_at
        return not run.readers and silent_s > DESERTED_S

    def _judge(self, run: Exec) -> None:
        """End a command of which nothing is heard any more."""
        silent_s = self._clock.monotonic() - run.heard_at
        if run.is_ended:
            return
        if silent_s > LOST_S:
            run.end(None, "the task's worker does not answer any more")
        elif silent_s > ENDED_S and not self._is_current(run):
            run.end(None, "the job has ended, and the command with it")

    def _sweep(self) -> None:
        now = self._clock.monotonic()
        for run in list(self._all.values()):
            self._judge(run)
            if now - max(run.heard_at, run.read_at) > KEEP_S and not run.readers:
                self._all.pop(run.id)


def _runs_scripts(link: WorkerLink) -> bool:
    return re.split(r"[:.]", link.worker.spec.worker_class)[-1] == SCRIPT_CLASS
