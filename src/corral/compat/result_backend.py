"""Brings the ends of tasks into a Celery result backend; what is owed is asked again.

It keeps nothing that could be lost: the ledger says which tasks, the manager how they
ended, and a result that could not be written is fetched once more. Results have the
form that Celery's clients read from a Redis result backend.
"""

from __future__ import annotations

import asyncio
import builtins
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from celery import states
from redis.asyncio import Redis

from corral.client import AsyncClient, Collected, TaskInfo
from corral.compat.broker import OwedResults, RefusalAnswer
from corral.compat.result import (
    RemoteError,
    TaskRevoked,
    TimeLimitPassed,
    ended_state_of,
    error_of,
)
from corral.compat.retry import persist

_CELERY = "celery.exceptions"
_POISON = "poison"
_REFUSALS = {
    "unknown_task_type": ("NotRegistered", _CELERY),
    "not_json": ("ContentDisallowed", "kombu.exceptions"),
    "not_carried_out": ("NotImplementedError", "builtins"),
    "task_not_found": ("LookupError", "builtins"),
}
EXPIRES_S = 86_400
CHUNK = 1_000
LIVELY_S = 0.5
LOOK_S = 1.0
WATCHERS = 8
LABEL = "celery-results"


class ResultWriter:
    """Watches tasks in long polls and writes how they ended.

    New tasks are waited for by themselves, so that a client which sends one task and
    waits is answered at once. Those that take longer are looked after together.
    """

    def __init__(
        self, client: AsyncClient, backend: Redis, ledger: OwedResults, mark: str
    ) -> None:
        self._client = client
        self._backend = backend
        self._ledger = ledger
        self._mark = mark
        self._open: set[str] = set()
        self._told: set[str] = set()
        self._late: dict[str, None] = {}
        self._fresh: asyncio.Queue[list[str]] = asyncio.Queue()
        self._has_late = asyncio.Event()
        self._has_answers = asyncio.Event()
        self._writing = asyncio.Lock()

    @property
    def labels(self) -> dict[str, str]:
        """What tasks carry whose results go to this backend."""
        return {LABEL: self._mark}

    def watch(self, task_ids: Sequence[str]) -> None:
        self._open.update(task_ids)
        self._fresh.put_nowait(list(task_ids))

    def announce(self) -> None:
        """There are refusals in the ledger."""
        self._has_answers.set()

    async def recover(self) -> None:
        """Take up what a former self left, before anything new is watched."""
        owed = await self._ledger.owed()
        if not await self._ledger.is_whole():
            found = await self._known_to_manager()
            await self._ledger.restore(found)
            owed |= found
        self._open |= owed
        self._put_off(owed)
        self.announce()

    async def _known_to_manager(self) -> set[str]:
        label = f"{LABEL}:{self._mark}"
        oldest = datetime.now(UTC) - timedelta(seconds=EXPIRES_S)
        live = self._client.list_tasks(status="queued,running", label=label)
        found = {task.task_id async for task in live}
        async for task in self._client.list_tasks(label=label):
            if task.created_at is not None and task.created_at < oldest:
                break
            found.add(task.task_id)
        return found

    async def run(self, *, tracks_started: bool) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(WATCHERS):
                group.create_task(persist(self._watch_fresh))
            group.create_task(persist(self._sweep))
            group.create_task(persist(self._answer))
            if tracks_started:
                group.create_task(persist(self._look_for_started))

    async def _watch_fresh(self) -> None:
        ids = await self._fresh.get()
        while not self._fresh.empty() and len(ids) < CHUNK:
            ids += self._fresh.get_nowait()
        self._put_off(ids[CHUNK:])
        ids = ids[:CHUNK]
        try:
            found = await self._client.collect(ids, wait_s=LIVELY_S)
            await self._deliver(found)
        except BaseException:
            self._put_off(ids)
            raise
        self._put_off(found.pending)

    def _put_off(self, ids: Iterable[str]) -> None:
        self._late.update(dict.fromkeys(ids))
        if self._late:
            self._has_late.set()

    async def _sweep(self) -> None:
        """Look after all that take longer, once."""
        await self._has_late.wait()
        ids = iter(list(self._late))
        is_alone = len(self._late) <= CHUNK
        while chunk := list(islice(ids, CHUNK)):
            # The last ones are waited for; else the round itself would take too long.
            wait_s = LIVELY_S if is_alone else 0.0
            found = await self._client.collect(chunk, wait_s=wait_s)
            await self._deliver(found)
            live = set(found.pending)
            for task_id in chunk:
                if task_id not in live:
                    self._late.pop(task_id, None)
        if not is_alone:
            await asyncio.sleep(LIVELY_S)
        if not self._late:
            self._has_late.clear()

    async def _deliver(self, found: Collected) -> None:
        """Write results first, then strike them off: the other way could lose one."""
        metas = {task.task_id: self._meta(task) for task in found.tasks}
        metas |= {task_id: refused(_unknown(task_id)) for task_id in found.unknown}
        if not metas:
            return
        async with self._writing:
            await self._write(metas)
            await self._ledger.paid(list(metas))
            self._open -= metas.keys()
            self._told -= metas.keys()

    def _meta(self, task: TaskInfo) -> str:
        if task.labels.get(LABEL) == self._mark:
            return ended(task)
        reason = "the id belongs to a task that did not come from this ingress"
        return refused(RefusalAnswer(task.task_id, "conflict", reason))

    async def _write(self, metas: Mapping[str, str]) -> None:
        async with self._backend.pipeline(transaction=False) as pipe:
            for task_id, text in metas.items():
                pipe.set(key_of(task_id), text, ex=EXPIRES_S)
                pipe.publish(key_of(task_id), text)
            await pipe.execute()

    async def _answer(self) -> None:
        """Tell those whose messages were refused."""
        await self._has_answers.wait()
        self._has_answers.clear()
        try:
            while answers := await self._ledger.unanswered():
                await self._write({a.task_id: refused(a) for a in answers})
                await self._ledger.answered(answers)
        except BaseException:
            self._has_answers.set()
            raise

    async def _look_for_started(self) -> None:
        """There is no signal for a start: asked for once a second, while any is due."""
        await asyncio.sleep(LOOK_S)
        if not self._open - self._told:
            return
        label = f"{LABEL}:{self._mark}"
        running = [
            task
            async for task in self._client.list_tasks(status="running", label=label)
        ]
        async with self._writing:
            due = self._open - self._told
            new = {t.task_id: started(t) for t in running if t.task_id in due}
            await self._write(new)
            self._told |= new.keys()


def _unknown(task_id: str) -> RefusalAnswer:
    return RefusalAnswer(
        task_id, "task_not_found", "the cluster no longer knows this task"
    )


def key_of(task_id: str) -> str:
    """Where the meta of a task is kept; also the channel it is announced on."""
    return f"celery-task-meta-{task_id}"


def ended(task: TaskInfo) -> str:
    """The meta of a task that has ended."""
    if task.is_completed:
        return _meta(task.task_id, states.SUCCESS, task.result, done=task.completed_at)
    error = error_of(task)
    return _meta(
        task.task_id,
        ended_state_of(task),
        _thrown(error),
        traceback=error.traceback,
        done=task.completed_at,
    )


def started(task: TaskInfo) -> str:
    """The meta of a task that runs now."""
    return _meta(task.task_id, states.STARTED, {"hostname": task.worker_id})


def refused(answer: RefusalAnswer) -> str:
    """The meta of a message that was not taken."""
    name, module = _REFUSALS.get(answer.code, ("ValueError", "builtins"))
    error = _error(name, module, answer.reason)
    return _meta(answer.task_id, states.FAILURE, error, done=datetime.now(UTC))


def _meta(
    task_id: str,
    status: Any,
    result: Any,
    *,
    traceback: str | None = None,
    done: datetime | None = None,
) -> str:
    return json.dumps(
        {
            "status": str(status),
            "result": result,
            "traceback": traceback,
            "children": [],
            "date_done": done.isoformat() if done else None,
            "task_id": task_id,
        }
    )


def _thrown(error: RemoteError) -> dict[str, Any]:
    if isinstance(error, TaskRevoked):
        return _error("TaskRevokedError", _CELERY, error.message)
    if isinstance(error, TimeLimitPassed):
        return _error("TimeLimitExceeded", _CELERY, error.message)
    if error.kind == _POISON:
        return _error("WorkerLostError", _CELERY, error.message)
    if error.exc_type is None:
        return _error("TaskFailed", "corral.errors", error.message)
    text = error.message.removeprefix(f"{error.exc_type}: ")
    return _error(error.exc_type, _module_of(error), text)


def _module_of(error: RemoteError) -> str | None:
    """Where the class of an error is, by the last line of its traceback."""
    if isinstance(getattr(builtins, error.exc_type, None), type):
        return "builtins"
    last = re.compile(rf"^([\w.]+)\.{re.escape(error.exc_type)}(?::|$)", re.MULTILINE)
    found = last.findall(error.traceback or "")
    return found[-1] if found else None


def _error(name: str, module: str | None, message: str) -> dict[str, Any]:
    return {"exc_type": name, "exc_message": [message], "exc_module": module}
