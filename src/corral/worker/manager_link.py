"""What a supervisor says to its manager: the common link, and what refusals mean."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable

from corral.errors import CorralError, Unreachable
from corral.relay.manager_link import HttpLink, LinkAnswer, LinkOptions

# Reports have numbers: the manager takes each once.
_OPTIONS = LinkOptions(timeout_s=30.0, connect_s=30.0, resends=True, by_proxy=False)
_AGAIN_S = 0.5
_RETRIABLE = frozenset({408, 425, 429})
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
        self.url = url
        self._http = HttpLink(url, key, ca_file, _OPTIONS)

    def post(self, path: str, body: bytes) -> bytes:
        """The answer's body.

        Raises:
            Away: no answer, or one that says later.
            Fenced: the manager does not know us any more.
            ReportRefused: the body itself is the problem.
        """
        answer = self._ask("POST", path, body)
        if answer.status in _FENCED:
            raise _as(Fenced, answer)
        return _body(answer)

    def insist(
        self,
        path: str,
        body: bytes,
        away_s: float,
        is_over: Callable[[], bool] = lambda: False,
    ) -> bytes:
        """`post`, again and again while the manager is away: it may be starting.

        Raises:
            Away: for longer than `away_s`, or `is_over` says that nobody waits.
            Fenced, ReportRefused: as `post`.
        """
        give_up_at, pause = time.monotonic() + away_s, threading.Event()
        while True:
            try:
                return self.post(path, body)
            except Away:
                if is_over() or time.monotonic() >= give_up_at:
                    raise
            pause.wait(_AGAIN_S)

    def get(self, path: str) -> bytes | None:
        """The answer's body; None when there is no such thing.

        Raises:
            Away: no answer, or one that says later.
            ReportRefused: it is not for us.
        """
        answer = self._ask("GET", path)
        return None if answer.status == 404 else _body(answer)

    def get_object(self, digest: str) -> bytes:
        """The bytes of an object, found to be those of its digest.

        Raises:
            Away: no answer, one that says later, or other bytes.
            ReportRefused: there is no such object, or none for us.
        """
        return self._get(digest, f"/objects/{digest}")

    def get_code(self, digest: str) -> bytes:
        """The same, of what a user sent to be run and of nothing else."""
        return self._get(digest, f"/objects/{digest}?as=code")

    def _get(self, digest: str, path: str) -> bytes:
        data = _body(self._ask("GET", path))
        if hashlib.sha256(data).hexdigest() != digest:
            raise Away(f"the bytes that came are not those of object {digest}")
        return data

    def close(self) -> None:
        self._http.close()

    def _ask(self, method: str, path: str, body: bytes | None = None) -> LinkAnswer:
        try:
            answer = self._http.ask(method, path, body)
        except Unreachable as error:
            raise Away(error.message) from error
        if answer.status in _RETRIABLE or answer.status >= 500:
            raise Away(answer.error().message, status=answer.status)
        return answer


def _body(answer: LinkAnswer) -> bytes:
    if answer.is_good:
        return answer.body
    raise _as(ReportRefused, answer)


def _as(kind: type[CorralError], answer: LinkAnswer) -> CorralError:
    return kind(f"{answer.status}: {answer.error().message}", status=answer.status)
