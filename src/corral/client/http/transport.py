"""The two drivers: they carry out the steps of a flow over httpx, and decide nothing.

This is the only place where the client's two colours differ.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from corral.client.http import request_ids
from corral.client.http.endpoint import (
    AsyncCalls,
    Flow,
    Items,
    NoAnswer,
    Pause,
    Request,
    Response,
    Stream,
    SyncCalls,
)
from corral.client.http.manager_address import Target, find_target
from corral.client.http.retry import Outcome, Patience, RetryRules, Step
from corral.trust import tls_context

T = TypeVar("T")
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class _Driver:
    """What both drivers know: where the manager is, and how long to insist."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        home: str | Path | None = None,
        ca_file: str | Path | None = None,
        timeout_s: float = 30.0,
        patience: Patience | None = None,
    ) -> None:
        self._target = find_target(url, api_key, home)
        self._timeout_s = timeout_s
        self._ca_file = ca_file
        self._persistence = RetryRules(self._target.url, patience or Patience())
        self._open(self._options())

    def _open(self, options: dict[str, Any]) -> None:
        raise NotImplementedError

    @property
    def url(self) -> str:
        """The manager it talks to."""
        return self._target.url

    def _options(self) -> dict[str, Any]:
        target = self._target
        return {
            "base_url": target.url,
            "headers": _headers(target),
            "verify": tls_context(target.url, self._ca_file or target.ca_file),
            # A proxy of the environment never sits between us and this machine.
            "trust_env": not target.is_local,
            # Less than servers keep an idle connection, so that none dies in use.
            "limits": httpx.Limits(max_connections=100, keepalive_expiry=4.0),
        }

    def _arguments(self, request: Request) -> dict[str, Any]:
        return {
            "method": request.method,
            "url": request.path,
            "params": request.query or None,
            "content": request.body,
            "headers": {**request_ids.headers(), **request.headers},
            "timeout": httpx.Timeout(
                self._timeout_s, read=self._timeout_s + request.wait_s, pool=None
            ),
        }


class SyncDriver(_Driver, SyncCalls):
    def _open(self, options: dict[str, Any]) -> None:
        self._http = httpx.Client(**options)

    def drive(self, flow: Flow[T]) -> T:
        """Carry out one call as it is declared; its value, or what it raises."""
        steps = self._persistence.persist(flow)
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as stop:
                value: T = stop.value
                return value
            outcome = self._perform(step)

    def iterate(self, stream: Stream[T]) -> Iterator[T]:
        """The values of a call that goes on, each as soon as it comes."""
        steps = self._persistence.persist(stream)
        outcome: Outcome = None
        while (step := _next(steps, outcome)) is not None:
            if isinstance(step, Items):
                yield from step.values
                outcome = None
            else:
                outcome = self._perform(step)

    def _perform(self, step: Step) -> Outcome:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        assert isinstance(step, Request)
        try:
            return _response(self._http.request(**self._arguments(step)))
        except httpx.TransportError as error:
            return _lost(error)

    def close(self) -> None:
        """Let go of its connections; it cannot be used after that."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncDriver(_Driver, AsyncCalls):
    def _open(self, options: dict[str, Any]) -> None:
        self._http = httpx.AsyncClient(**options)

    async def drive(self, flow: Flow[T]) -> T:
        """Carry out one call as it is declared; its value, or what it raises."""
        steps = self._persistence.persist(flow)
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as stop:
                value: T = stop.value
                return value
            outcome = await self._perform(step)

    async def iterate(self, stream: Stream[T]) -> AsyncIterator[T]:
        """The values of a call that goes on, each as soon as it comes."""
        steps = self._persistence.persist(stream)
        outcome: Outcome = None
        while (step := _next(steps, outcome)) is not None:
            if isinstance(step, Items):
                for value in step.values:
                    yield value
                outcome = None
            else:
                outcome = await self._perform(step)

    async def _perform(self, step: Step) -> Outcome:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        assert isinstance(step, Request)
        try:
            return _response(await self._http.request(**self._arguments(step)))
        except httpx.TransportError as error:
            return _lost(error)

    async def close(self) -> None:
        """Let go of its connections; it cannot be used after that."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _next(steps: Generator[Step, Outcome, None], outcome: Outcome) -> Step | None:
    try:
        return steps.send(outcome)
    except StopIteration:
        return None


def _response(answer: httpx.Response) -> Response:
    return Response(answer.status_code, answer.content, answer.headers)


def _lost(error: httpx.TransportError) -> NoAnswer:
    reason = str(error) or type(error).__name__
    return NoAnswer(reason, was_sent=not isinstance(error, _UNSENT))


def _headers(target: Target) -> dict[str, str]:
    headers = {"Content-Type": "application/json"}
    if target.api_key:
        headers["Authorization"] = f"Bearer {target.api_key}"
    return headers
