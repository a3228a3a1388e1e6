"""Tells an outside task service how tasks fare: PATCH /tasks/{id}/status.

It follows the events in the store behind a cursor of its own, at its own pace. Nobody
waits for it, and nothing is kept here that a restart could lose.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from corral.core.tasks.job_type import OWN_TYPES
from corral.core.tasks.retry import RetryPolicy
from corral.core.tasks.task import State, Task
from corral.manager.context import ManagerContext
from corral.manager.http_call import read_away
from corral.store.base import Event
from corral.trust import tls_context

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


@dataclass(frozen=True, slots=True)
class TaskServiceConfig:
    """Where the service is; `label` chooses tasks, all of them without it."""

    url: str
    key: str | None = None
    label: tuple[str, str] | None = None
    timeout_s: float = 10.0
    share: float = 0.2
    """Of the manager's time at most, while there is much to tell."""
    backoff: RetryPolicy = field(
        default_factory=lambda: RetryPolicy(base_s=0.5, cap_s=30.0)
    )


class SendResult(Enum):
    NOTHING = "nothing to tell"
    ANSWERED = "taken, or refused for good"
    BROKEN = "this call fails"
    AWAY = "no call gets through"


@dataclass(frozen=True, slots=True)
class OwedStatus:
    """A task whose status did not get through; `health` is the answers until then."""

    seq: int
    failures: int
    tries: int
    health: int
    due: float


class TaskService:
    """`open` once, then `step` again and again; `close` in the end."""

    def __init__(self, ctx: ManagerContext, config: TaskServiceConfig) -> None:
        self._cluster = ctx.cluster
        self._store = ctx.store
        self._clock = ctx.clock
        self._record = ctx.record
        self._config = config
        self._http: httpx.AsyncHTTPTransport | None = None
        self._headers = _headers(config)
        self._at = self._saved = 0
        self._page: dict[str, int] = {}
        self._owed: dict[str, OwedStatus] = {}
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
        if self._http is not None:
            await self._http.aclose()

    async def step(self) -> None:
        """Tell all that has changed and is due."""
        while batch := await self._next_batch():
            begun = time.thread_time()
            await self._tell(batch)
            if not self._page:
                await self._save()
            # What others did meanwhile counts too: the busier they are, the longer
            # this one stands back.
            used_s = time.thread_time() - begun
            await asyncio.sleep(used_s * (1 / self._config.share - 1))
        await self._save()

    # which tasks ---------------------------------------------------------------
    async def _next_batch(self) -> list[str]:
        now = self._clock.monotonic()
        due = [id_ for id_, owed in self._owed.items() if owed.due <= now]
        room = WINDOW - len(self._owed)
        if room <= 0:
            return due
        if not self._page:
            await self._turn_page()
        return due + list(islice(self._page, room))

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
        if task_id not in self._owed:
            self._page.setdefault(task_id, seq)

    async def _save(self) -> None:
        """Everything up to the cursor is told: a restart begins after it."""
        seqs = [*islice(self._page.values(), 1), *(o.seq for o in self._owed.values())]
        seq = min(seqs, default=self._at + 1) - 1
        if seq > self._saved:
            await self._store.events.save_cursor(CURSOR, seq)
            self._saved = seq

    # calls ---------------------------------------------------------------------
    async def _tell(self, batch: list[str]) -> None:
        rows = {task.id: task for task in await self._store.tasks.get_tasks(batch)}
        verdicts = await asyncio.gather(*(self._send(rows.get(id_)) for id_ in batch))
        for verdict, reason in verdicts:
            self._note(verdict, reason)
        for id_, (verdict, reason) in zip(batch, verdicts, strict=True):
            self._settle(id_, verdict, reason)

    async def _send(self, task: Task | None) -> tuple[SendResult, str]:
        if task is None or not self._is_theirs(task):
            return SendResult.NOTHING, ""
        body = msgspec.json.encode(status_of(task))
        if self._told.get(task.id) == hash(body):
            return SendResult.NOTHING, ""
        try:
            async with asyncio.timeout(self._config.timeout_s):
                status = await self._patch(task.id, body)
        except TimeoutError:
            return SendResult.BROKEN, f"no answer within {self._config.timeout_s:g} s"
        except (httpx.HTTPError, httpx.InvalidURL) as e:
            return SendResult.AWAY, str(e) or type(e).__name__
        verdict = _verdict(status)
        if verdict is SendResult.ANSWERED:
            self._remember(task, hash(body), is_known=status < 400)
            if status >= 400:
                log.info("the task service answered %d for %s", status, task.id)
        return verdict, f"it answered {status}"

    def _is_theirs(self, task: Task) -> bool:
        label = self._config.label
        if task.spec.job_type in OWN_TYPES:
            return False
        return label is None or task.spec.labels.get(label[0]) == label[1]

    async def _patch(self, task_id: str, body: bytes) -> int:
        url = f"{self._config.url}/tasks/{quote(task_id, safe='')}/status"
        request = httpx.Request("PATCH", url, headers=self._headers, content=body)
        answer = await self._open().handle_async_request(request)
        return await read_away(answer)

    def _open(self) -> httpx.AsyncHTTPTransport:
        """The bare transport: a client around it would double what a call costs."""
        if self._http is None:
            self._http = httpx.AsyncHTTPTransport(
                limits=httpx.Limits(max_connections=WINDOW),
                verify=tls_context(self._config.url, None),
                trust_env=False,
            )
        return self._http

    # what came of them ---------------------------------------------------------
    def _note(self, verdict: SendResult, reason: str) -> None:
        """Say once that the service is away, and once that it is back."""
        if verdict is SendResult.ANSWERED:
            self._answers += 1
            if self._trouble:
                log.info("the task service answers again")
            self._trouble = ""
        elif verdict is not SendResult.NOTHING and not self._trouble:
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

    def _settle(self, task_id: str, verdict: SendResult, reason: str) -> None:
        seq = self._page.pop(task_id, self._at)
        before = self._owed.pop(task_id, None) or OwedStatus(
            seq, 0, 0, self._answers, 0.0
        )
        if verdict in (SendResult.NOTHING, SendResult.ANSWERED):
            return
        # A failure counts against the task only when others got through meanwhile.
        counts = verdict is SendResult.BROKEN and self._answers > before.health
        tries, failures = before.tries + counts, before.failures + 1
        if tries >= GIVE_UP:
            log.error("the task service cannot take %s: %s; left out", task_id, reason)
            return
        delay_s = self._config.backoff.delay_s(failures, random.random())
        due = self._clock.monotonic() + delay_s
        self._owed[task_id] = OwedStatus(
            before.seq, failures, tries, self._answers, due
        )


def _headers(config: TaskServiceConfig) -> list[tuple[str, str]]:
    url = httpx.URL(config.url)
    headers = [("host", url.netloc.decode("ascii"))]
    headers += [("content-type", "application/json"), ("user-agent", "corral")]
    if config.key:
        headers.append(("authorization", f"Bearer {config.key}"))
    return headers


def _runs(task: Task) -> bool:
    return task.state is State.RUNNING


def _verdict(status: int) -> SendResult:
    if status in _AWAY or 300 <= status < 400:
        return SendResult.AWAY
    return SendResult.BROKEN if status >= 500 else SendResult.ANSWERED


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
