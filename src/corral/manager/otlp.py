"""Spans as OTLP writes them, in JSON, and the way to a collector over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import msgspec

from corral import __version__
from corral.core.insight.span import Facts, Moment, Span
from corral.core.tasks.retry import RetryPolicy
from corral.manager.http_call import read_away
from corral.trust import tls_context

PATH = "/v1/traces"
_AGAIN = frozenset({408, 425, 429, 502, 503, 504})
_CONSUMER, _INTERNAL = 5, 1
_ERROR = 2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


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
    backoff: RetryPolicy = field(
        default_factory=lambda: RetryPolicy(base_s=1.0, cap_s=60.0)
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a batch; `trouble` is empty once the collector has it."""

    trouble: str = ""
    is_away: bool = False
    """It is worth another try."""


class Collector:
    """The other end; `close` when done."""

    def __init__(self, config: TraceConfig) -> None:
        self._config = config
        self.url = config.url + ("" if config.url.endswith(PATH) else PATH)
        own = {"content-type": "application/json", "user-agent": "corral"}
        told = {name.lower(): value for name, value in config.headers.items()}
        pairs = [(k.encode(), v.encode()) for k, v in (own | told).items()]
        self._headers = [(b"host", httpx.URL(self.url).netloc), *pairs]
        self._http: httpx.AsyncHTTPTransport | None = None

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    async def send(self, body: bytes) -> Answer:
        try:
            async with asyncio.timeout(self._config.timeout_s):
                status = await self._post(body)
        except TimeoutError:
            return Answer(f"no answer within {self._config.timeout_s:g} s", True)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return Answer(str(error) or type(error).__name__, True)
        if 200 <= status < 300:
            return Answer()
        return Answer(f"it answered {status}", status in _AGAIN)

    async def _post(self, body: bytes) -> int:
        request = httpx.Request("POST", self.url, headers=self._headers, content=body)
        return await read_away(await self._open().handle_async_request(request))

    def _open(self) -> httpx.AsyncHTTPTransport:
        if self._http is None:
            self._http = httpx.AsyncHTTPTransport(
                limits=httpx.Limits(max_connections=1),
                verify=tls_context(self.url, None),
                trust_env=False,
            )
        return self._http


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


def _event(moment: Moment) -> dict[str, Any]:
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
