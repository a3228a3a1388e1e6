"""Webhooks: tells whoever was named with a task that it has ended, until they know.

Who is owed a word stands in the store, made with the task itself; the manager that
settles a task rings here, and a restart begins with all that is still owed. A receiver
that fails, hangs or is away costs only itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from corral.core.tasks.options import trace_of
from corral.core.tasks.task import State, Task, TaskSpec
from corral.core.tasks.webhook import NOTIFY, Notice, public, urls_of
from corral.errors import CorralError, InvalidField, StoreUnavailable
from corral.manager.context import ManagerContext
from corral.manager.outbound.address import pin
from corral.manager.outbound.task_service import status_of
from corral.manager.outbound.webhook import (
    GONE,
    NotifyConfig,
    WebhookFacts,
    WebhookSender,
    root_of,
)
from corral.store.base import Event

log = logging.getLogger(__name__)
WINDOW = 16
"""Calls at once, and of those to one receiver:"""
SHARE = 4
PAUSE_S = 0.02
"""Between two calls to one receiver: a flood of ends must not slow the work itself."""
STORE_RETRY_S = 5.0
MOST_RECEIVERS = 100
_PAGE = 1000

Judged = TaskSpec | CorralError


@dataclass(slots=True)
class _WebhookReceiver:
    """What waits for one host and port, and how many calls are with it."""

    waiting: deque[Notice] = field(default_factory=deque)
    calls: int = 0


class TaskWebhooks:
    """`open` once, then `step` again and again; `close` in the end."""

    def __init__(self, ctx: ManagerContext, config: NotifyConfig) -> None:
        self._store = ctx.store
        self._clock = ctx.clock
        self._record = ctx.record
        self._config = config
        self._courier = WebhookSender(config, most_calls=WINDOW)
        self._ended: list[str] = []
        self._later: dict[tuple[str, str], Notice] = {}
        self._receivers: dict[str, _WebhookReceiver] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(WINDOW)
        self._news = asyncio.Event()
        self._looking = asyncio.Lock()
        ctx.signals.ended.listen(self._on_ended)

    @property
    def secret(self) -> str:
        return self._config.secret

    async def check(self, spec: TaskSpec) -> None:
        """Raises InvalidField when a webhook leads where none may lead."""
        answer = (await self.judge([spec]))[0]
        if isinstance(answer, CorralError):
            raise answer

    async def judge(self, rows: Sequence[Judged]) -> list[Judged]:
        """The specs, with a complaint in the place of each that may not be told."""
        roots = {root_of(url) for row in rows for url in _urls(row)}
        refused: dict[str, InvalidField] = {}
        for number, root in enumerate(sorted(roots)):
            try:
                if number >= MOST_RECEIVERS:
                    text = f"at most {MOST_RECEIVERS} receivers in one request"
                    raise InvalidField(text, field="notify")
                await pin(root, self._config.reach)
            except InvalidField as error:
                text = f"notify: {error.message.removeprefix('url: ')}"
                refused[root] = InvalidField(text, field="notify")
        if not refused:
            return list(rows)
        return [
            next((refused[r] for u in _urls(row) if (r := root_of(u)) in refused), row)
            for row in rows
        ]

    def _on_ended(self, ended: Sequence[tuple[Task, State]]) -> None:
        """Some of them may have webhooks."""
        for task, _ in ended:
            if NOTIFY in task.spec.labels:
                self._ended.append(task.id)
                self._news.set()

    async def open(self) -> None:
        """Take up all that is owed for tasks that have ended."""
        owed = await self._store.queues.notices()
        ids = sorted({notice.task_id for notice in owed})
        live: set[str] = set()
        for start in range(0, len(ids), _PAGE):
            tasks = await self._store.tasks.get_tasks(ids[start : start + _PAGE])
            live |= {task.id for task in tasks if not task.is_terminal}
        for notice in owed:
            if notice.task_id not in live:
                self._keep(notice)

    async def close(self) -> None:
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self._courier.close()

    # the loop ------------------------------------------------------------------
    async def step(self) -> None:
        """Rest until there is something to tell, and begin to tell it."""
        rest_s = self._rest_s()
        if not self._ended and (rest_s is None or rest_s > 0):
            with contextlib.suppress(TimeoutError):
                # Not wait_for: that one may swallow the cancellation of a stop.
                async with asyncio.timeout(rest_s):
                    await self._news.wait()
        await self.look()

    def _rest_s(self) -> float | None:
        times = [n.due for n in self._later.values() if n.due is not None]
        if not times:
            return None
        return (min(times) - self._clock.now()).total_seconds()

    async def look(self) -> None:
        """Begin with everything that is due now."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        self._news.clear()
        if ids := list(dict.fromkeys(self._ended)):
            for notice in await self._store.queues.notices(ids):
                self._keep(notice)
            # Only now: while the store is away they must not be forgotten.
            known = set(ids)
            self._ended = [id_ for id_ in self._ended if id_ not in known]
        now = self._clock.now()
        for place, notice in list(self._later.items()):
            if notice.due is None or notice.due <= now:
                del self._later[place]
                self._hand_over(notice)

    async def settled(self) -> None:
        """Return when no call is under way."""
        while self._calls:
            await asyncio.gather(*self._calls, return_exceptions=True)

    def _keep(self, notice: Notice) -> None:
        due = notice.due or self._clock.now()
        self._later[notice.task_id, notice.url] = replace(notice, due=due)
        self._news.set()

    def _hand_over(self, notice: Notice) -> None:
        root = root_of(notice.url)
        receiver = self._receivers.setdefault(root, _WebhookReceiver())
        receiver.waiting.append(notice)
        if receiver.calls < SHARE:
            receiver.calls += 1
            call = asyncio.create_task(self._serve(root, receiver))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def _serve(self, root: str, receiver: _WebhookReceiver) -> None:
        try:
            while receiver.waiting:
                notice = receiver.waiting.popleft()
                async with self._room:
                    await self._tell(notice)
                await asyncio.sleep(PAUSE_S)
        finally:
            receiver.calls -= 1
            if not receiver.calls and not receiver.waiting:
                self._receivers.pop(root, None)

    # one notice ----------------------------------------------------------------
    async def _tell(self, notice: Notice) -> None:
        try:
            found = await self._store.tasks.get_task(notice.task_id)
            if found is None:
                await self._store.queues.drop_notices([notice])
            elif found.is_terminal and found.run == notice.run:
                await self._settle(notice, await self._call(notice, found))
            # Else it was requeued: the end of that run rings again.
        except StoreUnavailable:
            due = self._clock.now() + timedelta(seconds=STORE_RETRY_S)
            self._keep(replace(notice, due=due))

    async def _settle(self, notice: Notice, trouble: str | None) -> None:
        if trouble is None:
            await self._store.queues.drop_notices([notice])
            return
        now = self._clock.now()
        since, tries = notice.since or now, notice.tries + 1
        delay = timedelta(seconds=self._config.backoff.delay_s(tries, random.random()))
        is_over = now + delay - since > timedelta(seconds=self._config.give_up_s)
        if is_over or trouble == GONE:
            await self._give_up(notice, tries, trouble)
            return
        later = replace(notice, tries=tries, since=since, due=now + delay)
        self._keep(later)
        await self._store.queues.save_notice(later)

    async def _give_up(self, notice: Notice, tries: int, trouble: str) -> None:
        root = root_of(notice.url)
        log.warning("%s is not told of %s: %s", root, notice.task_id, trouble)
        title = f"{root} could not be told that {notice.task_id} has ended"
        data = {"receiver": root, "tries": tries, "reason": trouble}
        ids = (notice.task_id,)
        await self._record(
            [Event("webhook_failed", title, "warning", data=data, task_ids=ids)]
        )
        await self._store.queues.drop_notices([notice])

    async def _call(self, notice: Notice, task: Task) -> str | None:
        """None once the receiver has it, else what went wrong."""
        body = msgspec.json.encode(told(task, self._clock.now()))
        delivery = f"{notice.task_id}:{notice.run}"
        trace = trace_of(task.spec.labels)
        facts = WebhookFacts("task.ended", delivery, notice.tries + 1, trace)
        return await self._courier.post(notice.url, body, facts)


def told(task: Task, now: datetime) -> dict[str, Any]:
    """What a receiver gets: keys and words of GET /tasks/{id}."""
    spec = task.spec
    brief = {
        "task_id": spec.id,
        "task_type": spec.job_type,
        **status_of(task),
        "attempt": task.attempt,
        "run": task.run,
        "created_at": task.created_at,
        "labels": public(spec.labels),
        "request_id": trace_of(spec.labels).request_id or None,
    }
    return {"event": "task.ended", "sent_at": now, "task": brief}


def _urls(row: Judged) -> list[str]:
    return urls_of(row.labels) if isinstance(row, TaskSpec) and row.labels else []
