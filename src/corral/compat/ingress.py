"""The opt-in ingress: messages of plain Celery clients become tasks of Corral.

A message is let go of only after the manager has stored its task, under the id the
client chose; so a death between any two steps repeats a step and nothing else.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import Redis

from corral.client import AsyncClient
from corral.compat.broker import (
    MessageOutcome,
    OwedResults,
    QueueList,
    RefusalAnswer,
    connect,
    lists_of,
)
from corral.compat.call_options import job_type
from corral.compat.message import CeleryCall, read, task_id_of
from corral.compat.result_backend import ResultWriter
from corral.compat.retry import insist, persist
from corral.errors import BadRequest, InvalidField, UnknownTaskType

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IngressConfig:
    """What an ingress is told.

    Args:
        broker_url: The Redis that clients send to.
        queues: The queues to take from.
        result_url: The Redis that clients read results from; None for no results.
        tasks: Job types by task name, where they are not those of `launch`; an empty
            one stands for that. All of them are made known at the start.
        tracks_started: Also say when a task has started.
    """

    broker_url: str
    queues: tuple[str, ...] = ("celery",)
    result_url: str | None = None
    tasks: Mapping[str, str] = field(default_factory=dict)
    tracks_started: bool = False


async def serve(config: IngressConfig, client: AsyncClient) -> None:
    """Run until cancelled.

    Raises:
        CorralError: the manager refuses this ingress altogether.
    """
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(connect(config.broker_url))
        mirror = None
        if config.result_url is not None:
            backend = await stack.enter_async_context(connect(config.result_url))
            mirror = ResultWriter(client, backend, OwedResults(broker), mark_of(config))
        await make_known(client, config.tasks)
        await Ingress(config, client, broker, mirror).run()


def mark_of(config: IngressConfig) -> str:
    """Tells the tasks of one result backend from those of another; no secret in it."""
    parts = urlsplit(config.result_url or "")
    place = f"{parts.hostname}:{parts.port}{parts.path}?{parts.query}"
    return hashlib.sha256(place.encode()).hexdigest()[:16]


async def make_known(client: AsyncClient, tasks: Mapping[str, str]) -> None:
    """Register the job types of tasks that were named, so that they may wait."""
    if not tasks:
        return
    known = {kind.name for kind in await client.job_types()}
    for name, kind in tasks.items():
        if (wanted := kind or job_type(name)) not in known:
            await client.register_job_type(wanted)


class Ingress:
    """Takes from every list of every queue, and hands in what it takes in batches."""

    def __init__(
        self,
        config: IngressConfig,
        client: AsyncClient,
        broker: Redis,
        mirror: ResultWriter | None,
    ) -> None:
        self._config = config
        self._client = client
        self._mirror = mirror
        self._inboxes = [QueueList(broker, name) for name in lists_of(config.queues)]

    async def run(self) -> None:
        if self._mirror is not None:
            await insist(self._mirror.recover)
        async with asyncio.TaskGroup() as group:
            for inbox in self._inboxes:
                group.create_task(persist(partial(self.turn, inbox)))
            if self._mirror is not None:
                tracks = self._config.tracks_started
                group.create_task(self._mirror.run(tracks_started=tracks))
            _log.info("taking messages from %s", ", ".join(self._config.queues))

    async def turn(self, inbox: QueueList) -> None:
        """Hand in what waits in one list, or wait for something."""
        raws = await inbox.take()
        if not raws:
            await inbox.wait()
            return
        verdicts = await self._judge(raws, inbox.source)
        await inbox.settle(verdicts)
        if self._mirror is not None:
            if owed := [v.task_id for v in verdicts if v.task_id is not None]:
                self._mirror.watch(owed)
            if any(v.is_refused for v in verdicts):
                self._mirror.announce()

    async def _judge(self, raws: Sequence[bytes], source: str) -> list[MessageOutcome]:
        verdicts: list[MessageOutcome] = []
        calls: list[tuple[bytes, CeleryCall, dict[str, Any]]] = []
        for raw in raws:
            try:
                call = read(raw)
                calls.append((raw, call, self._task(call, source)))
            except BadRequest as error:
                verdicts.append(self._refuse(raw, task_id_of(raw), error))
        refused = await self._submit([task for _, _, task in calls])
        for place, (raw, call, _) in enumerate(calls):
            if place in refused:
                reason = _reworded(call.name, refused[place])
                verdicts.append(self._refuse(raw, call.task_id, reason))
            else:
                is_owed = self._mirror is not None and call.wants_result
                verdicts.append(MessageOutcome(raw, call.task_id if is_owed else None))
        return verdicts

    def _task(self, call: CeleryCall, source: str) -> dict[str, Any]:
        kind = self._config.tasks.get(call.name)
        labels = {"celery-queue": source.partition("\x06")[0]}
        if self._mirror is not None and call.wants_result:
            labels |= self._mirror.labels
        return {
            "task_type": kind or job_type(call.name),
            "parameters": _own_payload(call) if kind else _celery_payload(call),
            "labels": labels,
            **call.options,
        }

    async def _submit(self, tasks: list[dict[str, Any]]) -> dict[int, BadRequest]:
        """Store tasks; which were refused, and why. A refused batch is halved."""
        if not tasks:
            return {}
        try:
            batch = await self._client.submit_batch(tasks)
            return {no.index: _as_error(no.code, no.message) for no in batch.errors}
        except BadRequest as error:
            if len(tasks) == 1:
                return {0: error}
        middle = len(tasks) // 2
        left = await self._submit(tasks[:middle])
        right = await self._submit(tasks[middle:])
        return left | {middle + place: error for place, error in right.items()}

    def _refuse(
        self, raw: bytes, task_id: str | None, error: BadRequest
    ) -> MessageOutcome:
        reason = " ".join(error.message.split())[:500]
        _log.warning("refused message %s: %s", task_id or "without id", reason)
        is_told = self._mirror is not None and task_id is not None
        answer = RefusalAnswer(task_id or "", error.code, reason) if is_told else None
        return MessageOutcome(raw, answer=answer, is_refused=True)


def _celery_payload(call: CeleryCall) -> dict[str, Any]:
    """As `corral.compat.celery` sends it; a CeleryWorker runs it."""
    return {"task": call.name, "args": call.args, "kwargs": call.kwargs}


def _own_payload(call: CeleryCall) -> dict[str, Any]:
    """For a worker that knows nothing of Celery: the keyword arguments."""
    if not call.args:
        return call.kwargs
    if "args" in call.kwargs:
        raise InvalidField("positional arguments and one called args", field="args")
    return {"args": call.args, **call.kwargs}


def _reworded(name: str, error: BadRequest) -> BadRequest:
    """What else this cluster serves is no business of a client's."""
    if error.code != UnknownTaskType.code:
        return error
    return UnknownTaskType(
        f"no worker of this cluster has ever served {name}; launch one, or name the "
        "task in CORRAL_CELERY_TASKS to let it wait"
    )


def _as_error(code: str, message: str) -> BadRequest:
    error = BadRequest(message)
    error.code = code
    return error
