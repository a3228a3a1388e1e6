"""One declaration, two faces: plain values for Client, awaitables for AsyncClient.

The face is chosen by the type of the instance a call is reached through, so both are
known to a type checker. Nothing here knows HTTP.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Generic, ParamSpec, TypeVar, overload

from corral.client.http.exchange import Flow, Stream

P = ParamSpec("P")
T = TypeVar("T")


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
