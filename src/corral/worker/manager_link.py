"""HTTP from a supervisor to its manager: one kept-alive connection per thread.

The plain client of the standard library: one small POST per order is the hot path,
and this costs a fraction of a richer client's processor time.
"""

from __future__ import annotations

import hashlib
import http.client
import threading
from typing import Any
from urllib.parse import urlsplit

import msgspec

from corral.errors import CorralError
from corral.trust import tls_context

TIMEOUT_S = 30.0
_RETRIABLE = frozenset({408, 425, 429, 500, 502, 503, 504})
_FENCED = frozenset({401, 403, 404, 409})


class Away(CorralError):
    """The manager does not answer now; the same call may be made again."""

    code = "unreachable"


class Fenced(CorralError):
    """The manager no longer knows this worker or this incarnation of it."""

    code = "conflict"


class ReportRefused(CorralError):
    """The manager will never take this body."""

    code = "bad_request"


class ManagerLink:
    """POSTs JSON and fetches objects, with the node's credential."""

    def __init__(self, url: str, key: str, ca_file: str | None = None) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port
        self._prefix = parts.path.rstrip("/")
        self._tls = None
        if parts.scheme == "https":
            self._tls = tls_context(url, ca_file)
        self._headers = {
            "Authorization": f"Bearer {key}",
            "Content-Type": "application/json",
        }
        self._of_thread = threading.local()
        self._open: set[http.client.HTTPConnection] = set()

    def post(self, path: str, body: bytes) -> bytes:
        """The answer's body.

        Raises:
            Away: no answer, or one that says later.
            Fenced: the manager does not know us any more.
            ReportRefused: the body itself is the problem.
        """
        status, answer = self._call("POST", path, body)
        if 200 <= status < 300:
            return answer
        message = f"{status}: {_message(answer)}"
        if status in _FENCED:
            raise Fenced(message, status=status)
        if status in _RETRIABLE or status >= 500:
            raise Away(message, status=status)
        raise ReportRefused(message, status=status)

    def get(self, path: str) -> bytes | None:
        """The answer's body; None when there is no such thing.

        Raises:
            Away: no answer, or one that says later.
            ReportRefused: it is not for us.
        """
        status, answer = self._call("GET", path, None)
        if status == 404:
            return None
        if 200 <= status < 300:
            return answer
        if status in _RETRIABLE or status >= 500:
            raise Away(_message(answer), status=status)
        raise ReportRefused(f"{status}: {_message(answer)}", status=status)

    def get_object(self, digest: str) -> bytes:
        """The bytes of an object, found to be those of its digest.

        Raises:
            Away: no answer, one that says later, or other bytes.
            ReportRefused: there is no such object, or none for us.
        """
        status, answer = self._call("GET", f"/objects/{digest}", None)
        if status in _RETRIABLE or status >= 500:
            raise Away(f"{status}: {_message(answer)}", status=status)
        if status != 200:
            raise ReportRefused(f"{status}: {_message(answer)}", status=status)
        if hashlib.sha256(answer).hexdigest() != digest:
            raise Away(f"the bytes that came are not those of object {digest}")
        return answer

    def close(self) -> None:
        """Close every thread's connection; nobody may be using them."""
        while self._open:
            self._open.pop().close()

    def _call(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        try:
            return self._exchange(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise Away(f"the manager does not answer: {reason}") from error

    def _exchange(
        self, method: str, path: str, body: bytes | None
    ) -> tuple[int, bytes]:
        kept = getattr(self._of_thread, "connection", None)
        if kept is not None:
            try:
                return self._ask(kept, method, path, body)
            except (http.client.HTTPException, ConnectionError):
                # The manager closes idle connections: the usual reason, and no
                # reason to wait.
                pass
        fresh = self._connect()
        self._open.add(fresh)
        self._of_thread.connection = fresh
        return self._ask(fresh, method, path, body)

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
    ) -> tuple[int, bytes]:
        try:
            connection.request(method, self._prefix + path, body, self._headers)
            response = connection.getresponse()
            return response.status, response.read()
        except BaseException:
            connection.close()
            self._open.discard(connection)
            self._of_thread.connection = None
            raise

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=TIMEOUT_S, context=self._tls
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)


def _message(answer: bytes) -> str:
    try:
        told: Any = msgspec.json.decode(answer)
        return str(told["error"]["message"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return answer[:200].decode("utf-8", "replace")
