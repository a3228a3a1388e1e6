"""What a call yields and what it gets back: values between declarations and drivers.

A declaration is a generator: it yields a Request, receives the Response, and returns
a typed value. Nothing here knows whether the caller blocks or awaits.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote

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


def segment(name: str) -> str:
    """A name as one part of a path, whatever a caller puts in it."""
    return quote(name, safe="", errors="replace")


def get(path: str, *, wait_s: float = 0.0, **query: Any) -> Request:
    """A read; parameters that are None are left out."""
    given = {key: _text(value) for key, value in query.items() if value is not None}
    return Request("GET", path, given, is_repeatable=True, wait_s=wait_s)


def _text(value: Any) -> str:
    # A word from a command line may hold bytes that are no text.
    return str(value).encode("utf-8", "replace").decode()
