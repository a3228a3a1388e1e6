"""Tasks as they are: found, listed, counted, waited for. Changes nothing but the marks
of dead letters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corral.core.tasks.job_type import NAME
from corral.core.tasks.task import Attempt, State, Task, TaskFilter, check_owner
from corral.errors import TaskNotFound, Unavailable
from corral.manager.context import ManagerContext
from corral.store.base import TaskPage, TaskStore

_WAIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class CollectedTasks:
    """Of the tasks that were asked for: those that live, and the others by id."""

    pending: Sequence[str]
    ended: Mapping[str, Task]


class TaskReads:
    def __init__(self, ctx: ManagerContext) -> None:
        self._cluster = ctx.cluster
        self._store: TaskStore = ctx.store.tasks

    async def find(self, task_id: str) -> Task | None:
        """The task as it is stored."""
        return await self._store.get_task(task_id)

    async def get(self, task_id: str) -> Task:
        """The task as it is stored.

        Raises:
            TaskNotFound: there is none.
        """
        return _found(await self._store.get_task(task_id), task_id)

    async def whole(
        self, task_id: str, wait_s: float = 0.0
    ) -> tuple[Task, Sequence[Attempt]]:
        """A task, once it has ended or after so long, and its attempts.

        Raises:
            TaskNotFound: there is none.
        """
        if wait_s:
            await self.wait([task_id], wait_s)
        task = _found(await self._store.get_task(task_id), task_id)
        if not _has_history(task):
            # Most tasks: nothing is looked up for them.
            return task, ()
        return task, await self._store.attempts(task_id)

    async def attempts(self, task: Task) -> Sequence[Attempt]:
        """The attempts of a task that say more than the task itself."""
        return await self._store.attempts(task.id) if _has_history(task) else ()

    def progress(self, task_id: str) -> tuple[float, str] | None:
        """How far a running task is, and in what words, where it says so."""
        return self._cluster.progress.get(task_id)

    async def page(
        self, where: TaskFilter, limit: int, offset: int = 0, cursor: str | None = None
    ) -> TaskPage:
        """Newest first."""
        return await self._store.list_tasks(where, limit, offset, cursor)

    async def discard_dead_letter(self, task_id: str, only_of: str | None) -> bool:
        """Let a task that failed be no dead letter; False when it is none.

        `only_of` as for cancelling.
        """
        stored = await self._store.get_task(task_id)
        if stored is not None:
            check_owner(stored.spec, only_of)
        term = self._cluster.term
        return await self._store.discard_dead_letter(term, task_id)

    # waiting ---------------------------------------------------------------------
    async def wait(self, task_ids: Sequence[str], timeout_s: float) -> None:
        """Return when none of them is live any more, or after the timeout."""
        await self._cluster.waiters.wait(task_ids, self._cluster.is_live, timeout_s)

    async def until_ended(self, task_ids: Sequence[str]) -> None:
        """Return when none of them is live any more, however long that takes.

        Raises:
            Unavailable: the manager stops.
        """
        while any(map(self._cluster.is_live, task_ids)):
            if self._cluster.followers.is_closing:
                raise Unavailable("the manager stops; ask again")
            await self.wait(task_ids, _WAIT_S)

    async def collect(
        self, task_ids: Sequence[str], timeout_s: float
    ) -> CollectedTasks:
        """What has become of many when all have ended, or after the timeout."""
        await self.wait(task_ids, timeout_s)
        pending = [t for t in task_ids if self._cluster.is_live(t)]
        live = set(pending)
        # What can be no id is not looked for: the store need not take any text.
        sought = [t for t in task_ids if t not in live and NAME.fullmatch(t)]
        found = await self._store.get_tasks(sought)
        return CollectedTasks(pending, {task.id: task for task in found})


def _found(task: Task | None, task_id: str) -> Task:
    if task is None:
        raise TaskNotFound(f"no task {task_id!r}", task_id=task_id)
    return task


def _has_history(task: Task) -> bool:
    """Was it tried more than once, or did it end badly?"""
    is_bad = task.is_terminal and task.state is not State.COMPLETED
    return task.attempt > 1 or is_bad
