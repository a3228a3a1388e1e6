"""HTTP to the manager, for agents, workers, ports and `corral up`: one for all.

The plain client of the standard library: a small POST per order is the hot path, and
this costs a fraction of a richer client's time, at each call and at the start. It tries
nothing again by itself; whoever calls knows whether waiting makes sense.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import json
import os
import select
import sys
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import SplitResult, unquote, urlencode, urlsplit

import msgspec

from corral import errors
from corral.trust import is_this_machine, tls_context

T = TypeVar("T")
# Method, target, body, headers; and an answer with its body, which has been read.
_Request = tuple[str, str, bytes | None, dict[str, str]]
_Response = tuple[http.client.HTTPResponse, bytes]
_BY_STATUS: dict[int, type[errors.CorralError]] = {
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.TooLarge,
    429: errors.RateLimited,
}


@dataclass(frozen=True, slots=True)
class LinkAnswer:
    """What the manager answered, good or not; names of headers are in any case."""

    url: str
    status: int
    body: bytes
    headers: http.client.HTTPMessage = field(default_factory=http.client.HTTPMessage)

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300

    def read(self, kind: type[T]) -> T:
        """What it says, as a value of this kind.

        Raises:
            CorralError: what an error answer stands for.
            Unavailable: it is something else.
        """
        if not self.is_good:
            raise self.error()
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise errors.Unavailable(
                f"{self.url} did not answer as a manager does: {error}"
            ) from None

    def error(self) -> errors.CorralError:
        """The exception an error answer stands for, also when a proxy wrote it."""
        code, message = "", f"{self.url} answered {self.status}"
        is_removed = False
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            told = json.loads(self.body)["error"]
            message = str(told["message"])
            code = str(told["code"])
            is_removed = told["details"].get("is_removed") is True
        kind = errors.BY_CODE.get(code) or _BY_STATUS.get(self.status)
        if kind is None:
            kind = errors.Unavailable if self.status >= 500 else errors.BadRequest
        facts = {"is_removed": True} if is_removed else {}
        return kind(message, status=self.status, is_ours=bool(code), **facts)


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """How one user of the link differs from another."""

    timeout_s: float = 10.0
    """For each answer; the other one is for a connection."""
    connect_s: float = 3.0
    resends: bool = False
    """Send a request once more when a kept connection breaks under it. Only where the
    manager takes the same request twice for one.
    """
    by_proxy: bool = True
    """Heed the proxies of the environment, except on this machine."""


_USUAL = LinkOptions()


class HttpLink:
    """One manager, kept-alive connections. Safe to use from several threads.

    Args:
        url: The manager's address; what stands in its path comes before every path.
        key: Shown with every request, unless that brings its own.
        ca_file: Believed beside the system's authorities, see `trust`.
        options: What is not as usual.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        ca_file: str | Path | None = None,
        options: LinkOptions = _USUAL,
    ) -> None:
        self.url = url.rstrip("/")
        self._place = urlsplit(self.url)
        self._tls = tls_context(url, ca_file)
        self._headers = {"Content-Type": "application/json"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._options = options
        self._proxy = _proxy_of(self._place) if options.by_proxy else None
        self._before = self._place.path
        if self._proxy is not None and self._place.scheme != "https":
            # A proxy that passes plain requests on is told the whole address.
            self._before = self.url
            self._headers |= _authorization(self._proxy)
        self._name, self._numbers = uuid.uuid4().hex[:12], itertools.count(1)
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._is_closed = False

    def post(self, path: str, body: Any, kind: type[T]) -> T:
        """Raises CorralError, as does `get`: what the manager said, or Unreachable."""
        return self.ask("POST", path, msgspec.json.encode(body)).read(kind)

    def get(
        self,
        path: str,
        params: Mapping[str, Any],
        kind: type[T],
        *,
        wait_s: float = 0.0,
    ) -> T:
        """A read that the manager may hold back for `wait_s`."""
        told = {name: "" if value is None else value for name, value in params.items()}
        timeout_s = self._options.timeout_s + wait_s
        return self.ask("GET", f"{path}?{urlencode(told)}", timeout_s=timeout_s).read(
            kind
        )

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> LinkAnswer:
        """Whatever the manager answers.

        Raises:
            Unreachable: nothing.
        """
        # Ours, so that it is known here as well when no answer comes.
        request_id = f"{self._name}-{next(self._numbers)}"
        sent = {**self._headers, "X-Request-ID": request_id, **(headers or {})}
        try:
            response, data = self._exchange(
                (method, self._before + path, body, sent),
                timeout_s or self._options.timeout_s,
            )
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise errors.Unreachable(
                f"the manager at {self.url} does not answer: {reason}",
                request_id=request_id,
            ) from error
        return LinkAnswer(self.url + path, response.status, data, response.headers)

    def close(self) -> None:
        """Let go of its connections; one in use is closed after that."""
        self._is_closed = True
        while (connection := self._take()) is not None:
            connection.close()

    def _exchange(self, request: _Request, timeout_s: float) -> _Response:
        kept = self._take()
        if kept is not None:
            try:
                return self._send(kept, request, timeout_s)
            except (http.client.HTTPException, ConnectionError):
                # The manager closes idle connections: it may have done so just now.
                if not self._options.resends:
                    raise
        return self._send(self._connect(), request, timeout_s)

    def _take(self) -> http.client.HTTPConnection | None:
        """A kept connection that is still open, for the caller alone."""
        with contextlib.suppress(IndexError):
            while True:
                connection = self._idle.pop()
                # Who may send twice finds out by sending, and spares the question.
                if self._options.resends or _is_open(connection):
                    return connection
                connection.close()
        return None

    def _send(
        self,
        connection: http.client.HTTPConnection,
        request: _Request,
        timeout_s: float,
    ) -> _Response:
        try:
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(timeout_s)
            connection.request(*request)
            response = connection.getresponse()
            data = response.read()
        except BaseException:
            connection.close()
            raise
        if connection.sock is not None:  # else the manager wants no more by it
            self._idle.append(connection)
            if self._is_closed:
                self.close()
        return response, data

    def _connect(self) -> http.client.HTTPConnection:
        way = self._proxy or self._place
        host, port = way.hostname or "127.0.0.1", way.port
        if self._place.scheme != "https":
            return http.client.HTTPConnection(
                host, port, timeout=self._options.connect_s
            )
        connection = http.client.HTTPSConnection(
            host, port, timeout=self._options.connect_s, context=self._tls
        )
        if self._proxy is not None:
            connection.set_tunnel(
                self._place.hostname or "",
                self._place.port,
                headers=_authorization(self._proxy),
            )
        return connection


def _is_open(connection: http.client.HTTPConnection) -> bool:
    """Has the manager left it open? Closed, there is something to read: its end."""
    if not hasattr(select, "poll"):  # Windows, whose select knows no limit of numbers
        return not select.select([connection.sock], [], [], 0)[0]
    poller = select.poll()
    poller.register(connection.sock, select.POLLIN)
    return not poller.poll(0)


def _proxy_of(place: SplitResult) -> SplitResult | None:
    """The proxy that this machine's environment names for a URL; by plain HTTP."""
    is_told = any(name.lower().endswith("_proxy") for name in os.environ)
    if is_this_machine(place.geturl()) or not (
        is_told or sys.platform in ("win32", "darwin")
    ):
        return None
    # Late: few machines have one.
    from urllib.request import getproxies, proxy_bypass

    known = getproxies()
    address = known.get(place.scheme) or known.get("all")
    if not address or proxy_bypass(place.hostname or ""):
        return None
    return urlsplit(address if "://" in address else f"http://{address}")


def _authorization(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    words = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    told = base64.b64encode(words.encode()).decode("ascii")
    return {"Proxy-Authorization": f"Basic {told}"}
