"""Sends a request again when that is safe, for a bounded time. No I/O here.

`persist` turns a flow of requests into single steps (send, pause, hand over) that the
two drivers carry out, so that the rules of retrying exist once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from corral.client.http.endpoint import (
    NOTHING,
    Items,
    NoAnswer,
    Pause,
    Request,
    Response,
)
from corral.client.http.errors import as_error, unreachable
from corral.core.backoff import Backoff
from corral.errors import CorralError, NotLeader, RateLimited, Unavailable

R = TypeVar("R")
Step: TypeAlias = Request | Pause | Items[Any]
Outcome: TypeAlias = Response | NoAnswer | None

_BACKOFF = Backoff(0.1, 5.0, jitter=0.5)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a call is tried again.

    `first_s` counts until the manager has answered this client once, `total_s` from
    then on: a command should say soon that nothing is there, while a long wait should
    live through a restart of the manager.
    """

    total_s: float = 30.0
    first_s: float = 30.0


class RetryRules:
    """The retry rules of one client, and whether it was ever answered."""

    def __init__(self, url: str, patience: Patience) -> None:
        self._url = url
        self._patience = patience
        self._was_answered = False

    def persist(
        self, flow: Generator[Request | Items[Any], Response, R]
    ) -> Generator[Step, Outcome, R]:
        """`flow` with every request sent until answered, refused or out of time."""
        reply: Response | CorralError | None = None
        try:
            while True:
                step = _resume(flow, reply)
                if isinstance(step, Items):
                    yield step
                    reply = NOTHING
                else:
                    reply = yield from self._attempt(step)
        except StopIteration as stop:
            value: R = stop.value
            return value
        finally:
            flow.close()

    def _attempt(
        self, request: Request
    ) -> Generator[Step, Outcome, Response | CorralError]:
        failures, failing_since = 0, 0.0
        while True:
            outcome = yield request
            if isinstance(outcome, Response):
                self._was_answered = True
                if outcome.status < 400:
                    return outcome
            error, hint_s = self._judge(request, outcome)
            failures += 1
            if failures == 1:  # a long poll may have been held for a while before
                failing_since = time.monotonic()
            if hint_s is None:
                return error
            delay_s = max(hint_s, _BACKOFF.delay_s(failures, random.random()))
            if time.monotonic() - failing_since + delay_s > self._limit_s():
                return error
            yield Pause(delay_s)

    def _limit_s(self) -> float:
        return self._patience.total_s if self._was_answered else self._patience.first_s

    def _judge(
        self, request: Request, outcome: Outcome
    ) -> tuple[CorralError, float | None]:
        """The error, and the least seconds before another try; None: no other try."""
        if not isinstance(outcome, Response):
            lost = outcome or NoAnswer("no answer", was_sent=True)
            again = request.is_repeatable or not lost.was_sent
            return unreachable(self._url, lost), 0.0 if again else None
        error = as_error(outcome, self._url)
        is_passing = isinstance(error, Unavailable | RateLimited)
        again = request.is_repeatable or isinstance(error, NotLeader | RateLimited)
        return error, _retry_after_s(outcome) if is_passing and again else None


def _resume(
    flow: Generator[Request | Items[Any], Response, Any],
    reply: Response | CorralError | None,
) -> Request | Items[Any]:
    if reply is None:
        return next(flow)
    if isinstance(reply, CorralError):
        return flow.throw(reply)
    return flow.send(reply)


def _retry_after_s(response: Response) -> float | None:
    try:
        return max(0.0, float(response.headers.get("retry-after", "")))
    except ValueError:
        return None
