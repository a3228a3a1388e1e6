"""One declaration, two faces: plain values for Client, awaitables for AsyncClient.

A declaration is a generator: it yields a Request, receives the Response, and returns a
typed value. The face is chosen by the type of the instance a call is reached through,
so both are known to a type checker. Nothing here sends anything.
"""

from __future__ import annotations

import functools
import time
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from math import inf
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, overload
from urllib.parse import quote

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP call. `is_repeatable` says that sending it twice does no harm.

    `wait_s` is how long the manager may hold the answer back (a long poll).
    """

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: bytes | None = None
    is_repeatable: bool = False
    wait_s: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """No answer came. `was_sent` is false when the request cannot have arrived."""

    reason: str
    was_sent: bool


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Items(Generic[T_co]):
    """Values a stream hands to its caller before it goes on."""

    values: Sequence[T_co]


Flow: TypeAlias = Generator[Request, Response, T]
Stream: TypeAlias = Generator[Request | Items[T], Response, None]
NOTHING = Response(0, b"")
POLL_S = 25.0


def segment(name: str) -> str:
    """A name as one part of a path, whatever a caller puts in it."""
    return quote(name, safe="", errors="replace")


def get(path: str, *, wait_s: float = 0.0, **query: Any) -> Request:
    """A read, held back by the manager for `wait_s` at most until there is news.

    Parameters that are None are left out.
    """
    query["wait"] = wait_s or None
    given = {key: _text(value) for key, value in query.items() if value is not None}
    return Request("GET", path, given, is_repeatable=True, wait_s=wait_s)


def poll(timeout_s: float | None = None, longest_s: float = POLL_S) -> Iterator[float]:
    """How long each of many long polls may be held back, while there is time left.

    There is one at least: who has no time at all still learns how things are.
    """
    ends = inf if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left_s = max(ends - time.monotonic(), 0.0)
        yield round(min(left_s, longest_s), 3)
        if time.monotonic() >= ends:
            return


def _text(value: Any) -> str:
    # A word from a command line may hold bytes that are no text.
    return str(value).encode("utf-8", "replace").decode()


class SyncCalls:
    """A client whose calls return when they are done."""

    def drive(self, flow: Flow[T]) -> T:
        raise NotImplementedError

    def iterate(self, stream: Stream[T]) -> Iterator[T]:
        raise NotImplementedError


class AsyncCalls:
    """A client whose calls are awaited."""

    async def drive(self, flow: Flow[T]) -> T:
        raise NotImplementedError

    def iterate(self, stream: Stream[T]) -> AsyncIterator[T]:
        raise NotImplementedError


class Endpoint(Generic[P, T]):
    """A call that ends with one value."""

    def __init__(self, flow: Callable[P, Flow[T]]) -> None:
        self._flow = flow
        self.__doc__ = flow.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Endpoint[P, T]: ...
    @overload
    def __get__(self, instance: SyncCalls, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, instance: AsyncCalls, owner: type
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: SyncCalls | AsyncCalls | None, owner: type) -> Any:
        if instance is None:
            return self
        flow, drive = self._flow, instance.drive

        @functools.wraps(flow)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return drive(flow(*args, **kwargs))

        return call


class StreamEndpoint(Generic[P, T]):
    """A call that yields values: an iterator, or an async iterator."""

    def __init__(self, stream: Callable[P, Stream[T]]) -> None:
        self._stream = stream
        self.__doc__ = stream.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> StreamEndpoint[P, T]: ...
    @overload
    def __get__(self, instance: SyncCalls, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(
        self, instance: AsyncCalls, owner: type
    ) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, instance: SyncCalls | AsyncCalls | None, owner: type) -> Any:
        if instance is None:
            return self
        stream, iterate = self._stream, instance.iterate

        @functools.wraps(stream)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return iterate(stream(*args, **kwargs))

        return call
