"""Tells an outside task service how tasks fare: PATCH /tasks/{id}/status.

It follows the events in the store behind a cursor of its own, at its own pace. Nobody
waits for it, and nothing is kept here that a restart could lose.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from corral.core.backoff import Backoff
from corral.core.tasks.job_type import OWN_TYPES
from corral.core.tasks.task import State, Task
from corral.manager.context import ManagerContext
from corral.manager.feature import Loop
from corral.manager.http_call import CallResult, HttpCaller
from corral.manager.outbound.outbox import Outbox
from corral.store.base import Event

log = logging.getLogger(__name__)
CURSOR = "task_service"
PERIOD_S = 0.5
WINDOW = 16
"""Calls at once, and tasks that may be owed before no more are begun with."""
PAGE = 20
REMEMBERED = 10_000
GIVE_UP = 10
RESULT_BYTES = 64 * 1024
ERROR_LENGTH = 10_000
_AWAY = frozenset({401, 403, 408, 425, 429, 502, 503, 504})


_BACKOFF = Backoff(base_s=0.5, cap_s=30.0)


@dataclass(frozen=True, slots=True)
class TaskServiceConfig:
    """Where the service is; `label` chooses tasks, all of them without it."""

    url: str
    key: str | None = None
    label: tuple[str, str] | None = None
    timeout_s: float = 10.0
    share: float = 0.2
    """Of the manager's time at most, while there is much to tell."""
    backoff: Backoff = _BACKOFF


@dataclass(slots=True)
class OwedStatus:
    """A task whose status is to be told; `task` is its row when that is tried.

    `answers` are those of other calls until its last try, `failures` the tries that
    count against it.
    """

    task_id: str
    seq: int
    task: Task | None = None
    answers: int | None = None
    failures: int = 0


class TaskService:
    """`open` once, then `step` again and again; `close` in the end."""

    def __init__(self, ctx: ManagerContext, config: TaskServiceConfig) -> None:
        self._cluster = ctx.cluster
        self._store = ctx.store
        self._record = ctx.record
        self._config = config
        self._http = HttpCaller(config.url, config.timeout_s, WINDOW)
        self._headers = {"authorization": f"Bearer {config.key}"} if config.key else {}
        self._outbox = Outbox(
            ctx.clock, config.backoff, self._send, window=WINDOW, most_calls=WINDOW
        )
        self._stepping = asyncio.Lock()
        self._at = self._saved = 0
        self._page: dict[str, int] = {}
        self._told: OrderedDict[str, int] = OrderedDict()
        self._queued: set[str] = set()
        self._answers = 0
        self._trouble = ""

    async def open(self) -> None:
        """Find the place in the events; the first time, that is their end."""
        at = await self._store.events.cursor(CURSOR)
        if at is None:
            at = await self._last_event()
            await self._store.events.save_cursor(CURSOR, at)
        self._at = self._saved = at
        running = (t.id for t in self._cluster.tasks.values() if _runs(t))
        self._queued.update(islice(running, REMEMBERED))

    async def _last_event(self) -> int:
        rows = await self._store.events.events(limit=1)
        if not rows:
            # A place after which to read needs an event to stand on.
            title = "the task service is told of tasks from here on"
            await self._record([Event("task_service_connected", title)])
            rows = (await self._store.events.events(limit=1000))[:1]
        return rows[0].seq

    async def close(self) -> None:
        await self._outbox.close()
        await self._http.close()

    def loop(self) -> Loop:
        return Loop("task service", PERIOD_S, self.step)

    async def step(self) -> None:
        """Tell all that has changed and is due."""
        async with self._stepping:
            while due := await self._next_due():
                begun = time.thread_time()
                await self._tell(due)
                if not self._page:
                    await self._save()
                # What others did meanwhile counts too: the busier they are, the longer
                # this one stands back.
                used_s = time.thread_time() - begun
                await asyncio.sleep(used_s * (1 / self._config.share - 1))
            await self._save()

    async def _tell(self, due: Sequence[OwedStatus]) -> None:
        tasks = await self._store.tasks.get_tasks([owed.task_id for owed in due])
        rows = {task.id: task for task in tasks}
        for owed in due:
            owed.task = rows.get(owed.task_id)
        self._outbox.begin()
        await self._outbox.settled()

    # which tasks ---------------------------------------------------------------
    async def _next_due(self) -> Sequence[OwedStatus]:
        room = WINDOW - len(self._outbox.items())
        if room > 0 and not self._page:
            await self._turn_page()
        for id_ in list(islice(self._page, max(room, 0))):
            owed = OwedStatus(id_, self._page.pop(id_))
            self._outbox.put(id_, self._config.url, owed)
        return list(self._outbox.due().values())

    async def _turn_page(self) -> None:
        # That a task began leaves no event: it would cost every short one a row.
        live = self._cluster.tasks
        for id_ in [i for i in self._queued if i in live and _runs(live[i])]:
            self._queued.discard(id_)
            self._add(id_, self._at + 1)
        while not self._page:
            events = await self._store.events.events(self._at, PAGE)
            if not events:
                return
            for event in events:
                for id_ in event.task_ids:
                    self._add(id_, event.seq)
            self._at = events[-1].seq

    def _add(self, task_id: str, seq: int) -> None:
        """One call for all that happened to a task: it tells how the task is then."""
        if not self._outbox.waits(task_id):
            self._page.setdefault(task_id, seq)

    async def _save(self) -> None:
        """Everything up to the cursor is told: a restart begins after it."""
        owed = [owed.seq for owed in self._outbox.items()]
        seq = min([*islice(self._page.values(), 1), *owed], default=self._at + 1) - 1
        if seq > self._saved:
            await self._store.events.save_cursor(CURSOR, seq)
            self._saved = seq

    # calls ---------------------------------------------------------------------
    async def _send(
        self, owed: OwedStatus, number: int, delay_s: float
    ) -> OwedStatus | None:
        before, owed.answers = owed.answers, self._answers
        if owed.task is None or not self._is_theirs(owed.task):
            return None
        body = msgspec.json.encode(status_of(owed.task))
        if self._told.get(owed.task_id) == hash(body):
            return None
        url = f"{self._config.url}/tasks/{quote(owed.task_id, safe='')}/status"
        call = self._http.send("PATCH", url, body, self._headers)
        result = await self._http.attempt(call)
        is_answered = _is_answered(result.status)
        self._note(is_answered, result.words)
        if is_answered:
            self._remember(owed.task, hash(body), is_known=result.is_taken)
            if not result.is_taken:
                log.info(
                    "the task service answered %d for %s", result.status, owed.task_id
                )
            return None
        # A failure counts against the task only when others got through meanwhile.
        if _is_broken(result) and before is not None:
            owed.failures += owed.answers > before
        if owed.failures < GIVE_UP:
            return owed
        log.error(
            "the task service cannot take %s: %s; left out", owed.task_id, result.words
        )
        return None

    def _is_theirs(self, task: Task) -> bool:
        label = self._config.label
        if task.spec.job_type in OWN_TYPES:
            return False
        return label is None or task.spec.labels.get(label[0]) == label[1]

    # what came of them ---------------------------------------------------------
    def _note(self, is_answered: bool, reason: str) -> None:
        """Say once that the service is away, and once that it is back."""
        if is_answered:
            self._answers += 1
            if self._trouble:
                log.info("the task service answers again")
            self._trouble = ""
        elif not self._trouble:
            self._trouble = reason
            host = urlsplit(self._config.url).hostname
            log.warning("the task service at %s: %s; it is tried again", host, reason)

    def _remember(self, task: Task, mark: int, is_known: bool) -> None:
        self._told[task.id] = mark
        self._told.move_to_end(task.id)
        if is_known and task.state in (State.QUEUED, State.ASSIGNED):
            self._queued.add(task.id)
        else:
            self._queued.discard(task.id)
        if len(self._told) > REMEMBERED:
            self._queued.discard(self._told.popitem(last=False)[0])


def _runs(task: Task) -> bool:
    return task.state is State.RUNNING


def _is_answered(status: int) -> bool:
    """Was it taken, or refused for good?"""
    return status // 100 in (2, 4) and status not in _AWAY


def _is_broken(result: CallResult) -> bool:
    """Does this one call fail, where others may get through?"""
    return result.is_late or (result.status >= 500 and result.status not in _AWAY)


def status_of(task: Task) -> dict[str, Any]:
    """What is told of a task: keys and words of GET /tasks/{id}."""
    is_assigned = task.state is State.ASSIGNED
    told: dict[str, Any] = {
        "status": "queued" if is_assigned else str(task.state),
        "worker_id": task.worker_id,
        "started_at": task.started_at,
        "completed_at": task.finished_at,
    }
    if task.error is not None:
        message = task.error.message[:ERROR_LENGTH].encode("utf-8", "replace")
        told["error"] = {"kind": task.error.kind, "message": message.decode()}
    result = (task.result or "").encode("utf-8", "surrogatepass")
    if result and len(result) <= RESULT_BYTES:
        told["result"] = msgspec.Raw(result)
    return told
