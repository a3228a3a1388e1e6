"""Runs tasks whose job type targets an app: the manager makes the call itself.

They are placed, recorded, retried and cancelled as those of workers are. A call that
dies with the manager is made again: its task goes back as a new attempt.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import httpx
import msgspec

from corral.core.tasks.app import App
from corral.core.tasks.outcome import Outcome, OutcomeKind
from corral.core.tasks.task import TaskError
from corral.errors import InvalidField, NotLeader, StoreUnavailable
from corral.manager.context import ManagerContext
from corral.manager.gateway.apps import AppRequests
from corral.manager.tasks import Tasks
from corral.manager.tasks.payload_schema import bad_result
from corral.wire.orders import Item, Order

log = logging.getLogger(__name__)
MAX_RESULT_BYTES = 16 << 20
_RETRY_S = 0.5
_QUICK_S = 0.25
"""A call that took less is never shown as running."""

_Key = tuple[str, int]


class AppCalls:
    def __init__(
        self, ctx: ManagerContext, requests: AppRequests, tasks: Tasks
    ) -> None:
        self._cluster = ctx.cluster
        self._requests = requests
        self._settle = tasks.settle
        self._reports = tasks.reports
        self._dispatch = tasks.dispatch
        self._clock = ctx.clock
        self._calls: dict[_Key, asyncio.Task[None]] = {}

    def take(self, order: Order) -> None:
        """Start the calls of one order; the scheduler bounds how many there are."""
        for item in order.items:
            key = item.key
            call = asyncio.create_task(self._run(order.worker_id, item))
            self._calls[key] = call
            call.add_done_callback(lambda call, key=key: self._done(key, call))  # type: ignore[misc]

    def drop(self, task_id: str, attempt: int) -> None:
        """Break a call off; its task has ended otherwise."""
        if call := self._calls.get((task_id, attempt)):
            call.cancel()

    async def stop(self) -> None:
        calls = list(self._calls.values())
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    def _done(self, key: _Key, call: asyncio.Task[None]) -> None:
        self._calls.pop(key, None)
        if call.cancelled() or (error := call.exception()) is None:
            return
        if isinstance(error, NotLeader):
            return
        log.error("the call of task %s broke off", key[0], exc_info=error)
        fault = TaskError("internal_error", "Corral's call broke off; its log says why")
        outcome = Outcome(*key, OutcomeKind.FAILED, error=fault)
        self._calls[key] = asyncio.create_task(self._record(outcome))
        self._calls[key].add_done_callback(lambda _: self._calls.pop(key, None))

    async def _run(self, link_id: str, item: Item) -> None:
        at, began = self._clock.now(), self._clock.monotonic()
        mark = asyncio.create_task(self._mark(link_id, item))
        try:
            outcome = await self._call(item)
        finally:
            mark.cancel()
        took_s = self._clock.monotonic() - began
        await self._record(replace(outcome, started_at=at, duration_s=took_s))

    async def _mark(self, link_id: str, item: Item) -> None:
        at = self._clock.now()
        await asyncio.sleep(_QUICK_S)
        if link := self._cluster.inside.get(link_id):
            try:
                await self._reports.start(link, [(item.task_id, item.attempt, at)])
            except StoreUnavailable:
                log.debug("task %s is not shown as running", item.task_id)

    async def _record(self, outcome: Outcome) -> None:
        """Settle, however long the store is away: the app did its work."""
        while True:
            try:
                await self._settle.settle([outcome])
                break
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)
        self._dispatch.kick()

    async def _call(self, item: Item) -> Outcome:
        job_type = self._cluster.job_types.get(item.job_type)
        app = self._cluster.apps.get((job_type and job_type.app) or "")
        if job_type is None or app is None:
            return _failed(item, "no_app", "the app it targets is gone", is_final=True)
        path = job_type.target.removeprefix(app.name)
        try:
            async with asyncio.timeout(item.timeout_s):
                return await self._post(app, path, item)
        except (TimeoutError, httpx.TimeoutException) as e:
            is_ours = isinstance(e, TimeoutError) and item.timeout_s is not None
            limit = item.timeout_s if is_ours else app.timeout_for(path)
            text = f"app '{app.name}' did not answer within {limit:g} s"
            error = TaskError("timeout", text)
            return Outcome(
                item.task_id, item.attempt, OutcomeKind.TIMED_OUT, error=error
            )
        except (httpx.HTTPError, httpx.InvalidURL) as e:
            text = f"app '{app.name}' cannot be reached: {e or type(e).__name__}"
            return _failed(item, "unreachable", text)
        except InvalidField as e:
            return _failed(item, "refused_target", e.message)

    async def _post(self, app: App, path: str, item: Item) -> Outcome:
        headers = [
            (b"content-type", b"application/json"),
            (b"accept", b"application/json"),
            (b"x-corral-task", item.task_id.encode()),
            (b"x-corral-attempt", b"%d" % item.attempt),
        ]
        if item.request_id:
            headers.append((b"x-request-id", item.request_id.encode()))
        if item.traceparent:
            headers.append((b"traceparent", item.traceparent.encode()))
        content = bytes(item.payload)
        if await self._requests.is_own_worker(app):
            # Workers of ours take whole jobs; the id makes a repeated call one job.
            job_id = f"{item.task_id}.{item.attempt}"
            job = {"id": job_id, "schema_name": item.job_type}
            content = msgspec.json.encode({**job, "payload": msgspec.Raw(content)})
        response = await self._requests.send(
            app, "POST", path.encode(), headers, content
        )
        try:
            body = await _read(response)
        finally:
            await response.aclose()
        return _outcome(app.name + path, item, response.status_code, body)


async def _read(response: httpx.Response) -> bytes | None:
    """The body, or None when it is larger than a result may be."""
    parts, size = [], 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > MAX_RESULT_BYTES:
            return None
        parts.append(part)
    return b"".join(parts)


def _outcome(target: str, item: Item, status: int, body: bytes | None) -> Outcome:
    if not 200 <= status < 300:
        said = (body or b"")[:500].decode(errors="replace")
        return _failed(item, "bad_status", f"{target} answered {status}: {said}")
    done = Outcome(item.task_id, item.attempt, OutcomeKind.COMPLETED)
    if body is None:
        text = f"{target} answered more than {MAX_RESULT_BYTES} bytes"
        return bad_result(done, text)
    if not body.strip():
        return replace(done, result="null")
    try:
        told = msgspec.json.decode(body)
        text = body.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        return bad_result(done, f"{target} did not answer JSON: {e}")
    if not _is_envelope(told):
        return replace(done, result=text)
    output = msgspec.json.encode(told["output"]).decode()
    if told["status"] == "completed":
        return replace(done, result=output)
    return _failed(item, "failed", f"{target} answered {told['status']}: {output}")


def _is_envelope(told: object) -> bool:
    """Workers of the job API answer `{"status", "output"}` instead of the output."""
    return (
        isinstance(told, dict)
        and told.keys() == {"status", "output"}
        and told["status"] in ("completed", "failed", "error")
    )


def _failed(item: Item, kind: str, message: str, *, is_final: bool = False) -> Outcome:
    return Outcome(
        item.task_id,
        item.attempt,
        OutcomeKind.FAILED,
        error=TaskError(kind, message),
        is_final=is_final,
    )
