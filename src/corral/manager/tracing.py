"""Traces: makes spans of attempts that have ended and sends them to a collector.

They go as OTLP, in JSON over HTTP. Nobody waits for it: what cannot be sent in time is
counted and dropped; where no collector is named, nothing at all is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import msgspec

from corral import __version__
from corral.core.backoff import Backoff
from corral.core.insight.trace_spans import (
    AttemptHistory,
    EndedAttempt,
    Facts,
    Span,
    SpanEvent,
    ended,
    gone_back,
    is_sampled,
    light,
    spans_of,
    traceparent_of,
)
from corral.core.tasks.job_type import OWN_TYPES
from corral.core.tasks.outcome import Settlement
from corral.core.tasks.task import State, Task
from corral.log_line import Redaction
from corral.manager.clock import Clock
from corral.manager.counters import Counters
from corral.manager.feature import Loop
from corral.manager.http_call import HttpCaller
from corral.manager.signals import Signals

log = logging.getLogger(__name__)
PATH = "/v1/traces"
_AGAIN = frozenset({0, 408, 425, 429, 502, 503, 504})
_CONSUMER, _INTERNAL = 5, 1
_ERROR = 2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
PERIOD_S = 0.5
BATCH = 50
"""Attempts in one request: more would hold up everything else while it is written."""
_PASTS = 10_000
_MOMENTS = 32
_BACKOFF = Backoff(1.0, 60.0)
_FAREWELL_S = 2.0
_HINT = "spans are sent as OTLP over HTTP, which collectors take at port 4318"


@dataclass(frozen=True, slots=True)
class TraceConfig:
    """Where the collector is. `ratio` is of tasks that came without a trace."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    service: str = "corral"
    ratio: float = 1.0
    timeout_s: float = 10.0
    most: int = 10_000
    """Ended attempts that wait to be sent; of more, none is kept."""
    share: float = 0.2
    """Of the manager's time at most, while there is much to send."""
    backoff: Backoff = _BACKOFF


class Tracing:
    """Without a config it does nothing."""

    def __init__(
        self,
        counters: Counters,
        signals: Signals,
        clock: Clock,
        config: TraceConfig | None,
    ) -> None:
        self._counters = counters
        self._clock = clock
        self._config = config or TraceConfig("http://localhost:4318")
        self._is_on = config is not None
        url = self._config.url
        self._url = url + ("" if url.endswith(PATH) else PATH)
        self._headers = {k.lower(): v for k, v in self._config.headers.items()}
        self._http = HttpCaller(self._url, self._config.timeout_s, most_calls=1)
        self._redaction = Redaction()
        self._waiting: deque[EndedAttempt] = deque()
        self._unsent: tuple[int, bytes] | None = None
        self._pasts: OrderedDict[str, AttemptHistory] = OrderedDict()
        self._news = asyncio.Event()
        self._sending = asyncio.Lock()
        self._failures = 0
        if self._is_on:
            signals.accepted.listen(self.accept)
            signals.settled.listen(self.settle)

    # what is told --------------------------------------------------------------
    def settle(self, settled: Iterable[tuple[Task, Settlement]]) -> None:
        """Attempts have ended, and the store has that."""
        for task, row in settled:
            if not self._is_wanted(task):
                continue
            past = self._pasts.pop(task.id, None)
            self._put(ended(task, row, past))
            if row.state is State.QUEUED:
                self._remember(task, row, past)

    def accept(self, tasks: Iterable[Task]) -> None:
        """Tasks were stored; those answered from kept results have ended."""
        for task in tasks:
            if task.finished_at is not None and self._is_wanted(task):
                done = (task.state, str(task.state), task.finished_at)
                self._put(EndedAttempt(light(task), *done))

    def requeue(self, task_id: str, at: datetime) -> None:
        """An ended task begins a new run."""
        if self._is_on:
            self._keep(task_id, AttemptHistory(at, at))

    def traceparent(self, task: Task) -> str:
        """What the worker of this attempt is told."""
        if not self._is_on:
            return task.spec.options.traceparent
        return traceparent_of(task, self._config.ratio)

    def _is_wanted(self, task: Task) -> bool:
        return task.spec.job_type not in OWN_TYPES and is_sampled(
            task, self._config.ratio
        )

    def _put(self, done: EndedAttempt) -> None:
        if len(self._waiting) >= self._config.most:
            self._counters.traces_dropped.add("full")
            return
        self._waiting.append(done)
        self._news.set()

    def _remember(
        self, task: Task, row: Settlement, past: AttemptHistory | None
    ) -> None:
        if past is None and task.run > 1:
            # A former manager knew when this run began.
            past = AttemptHistory(task.assigned_at or row.finished_at, row.finished_at)
        run_at = past.run_at if past else task.created_at
        moments = (*(past.moments if past else ()), gone_back(row))
        self._keep(
            task.id, AttemptHistory(run_at, row.finished_at, moments[-_MOMENTS:])
        )

    def _keep(self, task_id: str, past: AttemptHistory) -> None:
        self._pasts[task_id] = past
        if len(self._pasts) > _PASTS:
            self._pasts.popitem(last=False)

    # the loop ------------------------------------------------------------------
    def loops(self) -> Sequence[Loop]:
        return [Loop("traces", PERIOD_S, self.step)] if self._is_on else []

    async def step(self) -> None:
        """Rest until there is something to send, and send it."""
        if not self._waiting and self._unsent is None:
            self._news.clear()
            await self._news.wait()
        await self.flush()
        if self._failures:
            pause_s = self._config.backoff.delay_s(self._failures, random.random())
            await self._clock.sleep(pause_s)

    async def flush(self) -> None:
        """Send all that waits, or as much as the collector takes."""
        async with self._sending:
            while self._unsent is not None or self._waiting:
                begun = time.thread_time()
                if not await self._send():
                    return
                # What others did meanwhile counts too, as it does for the neighbour.
                used_s = time.thread_time() - begun
                await asyncio.sleep(used_s * (1 / self._config.share - 1))

    async def close(self) -> None:
        """Send what is left, unless that takes long."""
        if self._is_on:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FAREWELL_S):
                    await self.flush()
        await self._http.close()

    async def _send(self) -> bool:
        """One batch; false when the collector is away and it is to be tried again."""
        count, body = self._unsent = self._unsent or self._next()
        call = self._http.send("POST", self._url, body, self._headers)
        answer = await self._http.attempt(call)
        if answer.status in _AGAIN:
            self._failures += 1
            self._say(answer.words, "it is tried again")
            return False
        self._unsent = None
        if not answer.is_taken:
            self._counters.traces_dropped.add("refused", count=count)
            self._failures += 1
            self._say(answer.words, "what it was sent is dropped")
            # It answers, so that there is no need to stand back.
            return True
        if self._failures:
            log.info("the collector takes traces again")
        self._failures = 0
        self._counters.traces_sent.add(count=count)
        return True

    def _next(self) -> tuple[int, bytes]:
        count = min(BATCH, len(self._waiting))
        batch = [self._waiting.popleft() for _ in range(count)]
        spans = [self._clean(span) for done in batch for span in spans_of(done)]
        return count, encode(spans, self._config.service)

    def _clean(self, span: Span) -> Span:
        """What user code says when it fails may hold a secret, as in a log line."""
        if not span.trouble:
            return span
        return replace(span, trouble=self._redaction.text(span.trouble))

    def _say(self, trouble: str, then: str) -> None:
        """Once, until it takes something again."""
        if self._failures == 1:
            place = urlsplit(self._url)
            where = f"{place.hostname}:{place.port}" if place.port else place.hostname
            log.warning(
                "the trace collector at %s: %s; %s (%s)", where, trouble, then, _HINT
            )


def encode(spans: Iterable[Span], service: str) -> bytes:
    """The body of one request."""
    scope = {"name": "corral", "version": __version__}
    facts = {"service.name": service, "service.version": __version__}
    rows = [_span(span) for span in spans]
    one = {
        "resource": {"attributes": _attributes(facts)},
        "scopeSpans": [{"scope": scope, "spans": rows}],
    }
    return msgspec.json.encode({"resourceSpans": [one]})


def _span(span: Span) -> dict[str, Any]:
    row: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.id,
        "name": span.name,
        "kind": _CONSUMER if span.name.startswith("task ") else _INTERNAL,
        "startTimeUnixNano": _nanos(span.begin),
        "endTimeUnixNano": _nanos(span.end),
        "attributes": _attributes(span.facts),
    }
    if span.parent_id:
        row["parentSpanId"] = span.parent_id
    if span.moments:
        row["events"] = [_event(moment) for moment in span.moments]
    if span.trouble is not None:
        row["status"] = {"code": _ERROR, "message": _clean(span.trouble)}
    return row


def _event(moment: SpanEvent) -> dict[str, Any]:
    return {
        "timeUnixNano": _nanos(moment.at),
        "name": moment.name,
        "attributes": _attributes(moment.facts),
    }


def _attributes(facts: Facts) -> list[dict[str, Any]]:
    return [
        {
            "key": name,
            # Whole numbers have 64 bits, which JSON cannot be trusted with.
            "value": {"intValue": str(value)}
            if isinstance(value, int)
            else {"stringValue": _clean(value)},
        }
        for name, value in facts.items()
    ]


def _clean(text: str) -> str:
    """Text may hold halves of characters, which cannot be sent."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _nanos(at: datetime) -> str:
    return str((at - _EPOCH) // _MICROSECOND * 1000)
