"""HTTP to one server: a request that can be ended from another thread at any moment."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

CONNECT_S = 10.0
PROBE_S = 10.0
_ERROR_BYTES = 64 * 1024


class Gone(Exception):
    """The server is not there, or went away in the middle; `was_asked` tells which."""

    def __init__(self, message: str, *, was_asked: bool) -> None:
        super().__init__(message)
        self.was_asked = was_asked


class Answered(Exception):
    """The server answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server answers; `path` is what stands before /v1."""

    host: str
    port: int
    path: str = ""
    is_secure: bool = False
    key: str | None = field(default=None, repr=False)

    @classmethod
    def of_url(cls, url: str, key: str | None = None) -> ServerAddress:
        parts = urlsplit(url)
        is_secure = parts.scheme == "https"
        port = parts.port or (443 if is_secure else 80)
        path = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.hostname or "", port, path, is_secure, key)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def connect(self, timeout_s: float) -> http.client.HTTPConnection:
        kind = (
            http.client.HTTPSConnection
            if self.is_secure
            else http.client.HTTPConnection
        )
        connection = kind(self.host, self.port, timeout=timeout_s)
        connection.connect()
        return connection


class Exchange:
    """One request and its answer, piece by piece. `abort` may come from any thread."""

    def __init__(
        self, address: ServerAddress, path: str, body: Mapping[str, Any]
    ) -> None:
        self._address = address
        self._path = address.path + path
        self._body = json.dumps(body).encode()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_aborted = False

    @property
    def is_aborted(self) -> bool:
        return self._is_aborted

    def abort(self) -> None:
        """Hang up: whoever reads sees the end, and the server that nobody listens."""
        with self._lock:
            self._is_aborted = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def whole(self) -> Any:
        """The answer as one JSON value."""
        with self._answer() as response:
            try:
                return json.loads(response.read())
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise _gone(error) from None

    def events(self) -> Iterator[dict[str, Any]]:
        """The events of a stream. Not every server says at its end that it is done:
        whether it is whole, its last event tells.

        Raises:
            Gone: the connection broke.
            Answered: the server sent an error.
        """
        with self._answer() as response:
            for line in _lines(response):
                if not line.startswith(b"data:"):
                    continue
                data = line[5:].strip()
                if data == b"[DONE]":
                    return
                yield _event(data)

    @contextlib.contextmanager
    def _answer(self) -> Iterator[http.client.HTTPResponse]:
        try:
            connection = self._address.connect(CONNECT_S)
        except OSError as error:
            raise Gone(_say(error), was_asked=False) from None
        with contextlib.closing(connection):
            self._take(connection)
            yield self._asked(connection)

    def _take(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._socket = connection.sock
            # A long answer is no fault: who watches the server hangs up for us.
            self._socket.settimeout(None)
            if self._is_aborted:
                raise Gone("nobody wants the answer", was_asked=False)

    def _asked(
        self, connection: http.client.HTTPConnection
    ) -> http.client.HTTPResponse:
        headers = {"Content-Type": "application/json", **self._address.headers}
        try:
            connection.request("POST", self._path, self._body, headers)
            response = connection.getresponse()
            if response.status == http.client.OK:
                return response
            text = response.read(_ERROR_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise _gone(error) from None
        raise Answered(response.status, message_in(text))


def ask(
    address: ServerAddress, path: str, timeout_s: float = PROBE_S
) -> tuple[int, bytes]:
    """A short question; status 0 when nobody answers."""
    try:
        with contextlib.closing(address.connect(timeout_s)) as connection:
            connection.request("GET", address.path + path, headers=address.headers)
            response = connection.getresponse()
            return response.status, response.read()
    except (OSError, http.client.HTTPException):
        return 0, b""


def message_in(text: bytes) -> str:
    """What an error's body says, in whichever of the usual shapes it has."""
    try:
        told: Any = json.loads(text)
    except ValueError:
        return text.decode("utf-8", "replace")
    if isinstance(told, dict):
        inner = told.get("error", told)
        if isinstance(inner, dict):
            inner = inner.get("message") or inner.get("detail") or told
        return str(inner)
    return str(told)


def _lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        while line := response.readline():
            yield line
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _gone(error) from None


def _event(data: bytes) -> dict[str, Any]:
    try:
        told = json.loads(data)
    except ValueError as error:
        raise _gone(error) from None
    if not isinstance(told, dict):
        raise Gone("the server sent something else than an event", was_asked=True)
    if "error" in told:
        code = told["error"].get("code") if isinstance(told["error"], dict) else None
        status = code if isinstance(code, int) else 500
        raise Answered(status, message_in(data))
    return told


def _gone(error: BaseException) -> Gone:
    return Gone(_say(error), was_asked=True)


def _say(error: BaseException) -> str:
    return str(error) or type(error).__name__
