"""Webhooks: tells whoever was named with a task that it has ended, until they know.

Who is owed a word stands in the store, made with the task itself; the manager that
settles a task rings here, and a restart begins with all that is still owed. A receiver
that fails, hangs or is away costs only itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from corral.core.tasks.task import State, Task, TaskSpec
from corral.core.tasks.webhook import Notice
from corral.errors import CorralError, InvalidField
from corral.manager.context import ManagerContext
from corral.manager.feature import Loop
from corral.manager.outbound.address import NameLookup, pin
from corral.manager.outbound.outbox import Outbox
from corral.manager.outbound.task_service import status_of
from corral.manager.outbound.webhook import (
    NotifyConfig,
    WebhookFacts,
    WebhookSender,
    failed,
    root_of,
)

log = logging.getLogger(__name__)
WINDOW = 16
"""Calls at once, and of those to one receiver:"""
SHARE = 4
MOST_RECEIVERS = 100
_PAGE = 1000

Judged = TaskSpec | CorralError


class TaskWebhooks:
    """`open` once, then `step` again and again; `close` in the end."""

    def __init__(self, ctx: ManagerContext, config: NotifyConfig) -> None:
        self._store = ctx.store
        self._clock = ctx.clock
        self._record = ctx.record
        self._config = config
        # Whoever may submit names receivers: a flood of slow names is theirs alone.
        self._names = NameLookup(threads=8)
        self._sender = WebhookSender(config, WINDOW)
        self.outbox = Outbox(
            ctx.clock, config.backoff, self._send, window=SHARE, most_calls=WINDOW
        )
        self._ended: list[str] = []
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
        known = sorted(roots)[:MOST_RECEIVERS]
        said = await asyncio.gather(*map(self._complaint, known))
        refused = {root: text for root, text in zip(known, said, strict=True) if text}
        for root in roots.difference(known):
            refused[root] = f"at most {MOST_RECEIVERS} receivers in one request"
        if not refused:
            return list(rows)
        return [_judged(row, refused) for row in rows]

    async def _complaint(self, root: str) -> str | None:
        try:
            await pin(root, self._config.reach, self._names)
        except InvalidField as error:
            return error.message.removeprefix("url: ")
        return None

    def _on_ended(self, ended: Sequence[tuple[Task, State]]) -> None:
        """Some of them may have webhooks."""
        for task, _ in ended:
            if task.spec.options.notify:
                self._ended.append(task.id)
                self.outbox.ring()

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
                self._put(notice)

    def _put(self, notice: Notice) -> None:
        now = self._clock.now()
        self.outbox.put(
            (notice.task_id, notice.url),
            root_of(notice.url),
            notice,
            tries=notice.tries,
            after_s=((notice.due or now) - now).total_seconds(),
        )

    async def close(self) -> None:
        await self.outbox.close()
        await self._sender.close()
        self._names.close()

    # the loop ------------------------------------------------------------------
    def loop(self) -> Loop:
        return Loop("webhooks", 0.1, self.step)

    async def step(self) -> None:
        """Rest until there is something to tell, and begin to tell it."""
        if not self._ended:
            await self.outbox.rest()
        await self.look()

    async def look(self) -> None:
        """Begin with everything that is due now."""
        async with self._looking:
            if ids := list(dict.fromkeys(self._ended)):
                for notice in await self._store.queues.notices(ids):
                    self._put(notice)
                # Only now: while the store is away they must not be forgotten.
                known = set(ids)
                self._ended = [id_ for id_ in self._ended if id_ not in known]
            self.outbox.begin()

    # one notice ----------------------------------------------------------------
    async def _send(self, notice: Notice, number: int, delay_s: float) -> Notice | None:
        task = await self._store.tasks.get_task(notice.task_id)
        if task is not None and (not task.is_terminal or task.run != notice.run):
            # It was requeued: the end of that run rings again.
            return None
        trouble = None if task is None else await self._call(notice, task, number)
        if trouble is not None:
            now = self._clock.now()
            since, due = notice.since or now, now + timedelta(seconds=delay_s)
            if not self._sender.is_over(trouble, since, due):
                later = replace(notice, tries=number, since=since, due=due)
                await self._store.queues.save_notice(later)
                return later
            await self._give_up(notice, number, trouble)
        await self._store.queues.drop_notices([notice])
        return None

    async def _give_up(self, notice: Notice, tries: int, trouble: str) -> None:
        root = root_of(notice.url)
        log.warning("%s is not told of %s: %s", root, notice.task_id, trouble)
        title = f"{root} could not be told that {notice.task_id} has ended"
        event = failed(title, root, tries, trouble)
        await self._record([replace(event, task_ids=(notice.task_id,))])

    async def _call(self, notice: Notice, task: Task, number: int) -> str | None:
        """None once the receiver has it, else what went wrong."""
        body = msgspec.json.encode(told(task, self._clock.now()))
        delivery = f"{notice.task_id}:{notice.run}"
        trace = task.spec.options.trace
        facts = WebhookFacts("task.ended", delivery, number, trace)
        return await self._sender.post(notice.url, body, facts)


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
        "labels": spec.labels,
        "request_id": spec.options.request_id or None,
    }
    return {"event": "task.ended", "sent_at": now, "task": brief}


def _judged(row: Judged, refused: Mapping[str, str]) -> Judged:
    for url in _urls(row):
        if text := refused.get(root_of(url)):
            return InvalidField(f"notify: {text}", field="notify")
    return row


def _urls(row: Judged) -> list[str]:
    return list(row.options.notify) if isinstance(row, TaskSpec) else []
