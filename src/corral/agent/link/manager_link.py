"""HTTP to the manager: one keep-alive client, errors as `corral.errors`.

It retries nothing by itself; whoever calls knows whether waiting makes sense.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec

from corral import errors
from corral.trust import is_this_machine, tls_context
from corral.wire.value import Value

T = TypeVar("T")

TIMEOUT = httpx.Timeout(10.0, connect=3.0)


def _tree(root: type[errors.CorralError]) -> Iterator[type[errors.CorralError]]:
    yield root
    for child in root.__subclasses__():
        yield from _tree(child)


_BY_CODE = {cls.code: cls for cls in _tree(errors.CorralError)}
_BY_STATUS: dict[int, type[errors.CorralError]] = {
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.TooLarge,
    429: errors.RateLimited,
}


class AgentLink:
    """One manager, one credential. Safe to use from several threads."""

    def __init__(
        self, manager_url: str, key: str, *, ca_file: Path | None = None
    ) -> None:
        self.manager_url = manager_url.rstrip("/")
        self._client = httpx.Client(
            base_url=self.manager_url,
            headers={
                "Authorization": f"Bearer {key}",
                "Content-Type": "application/json",
            },
            timeout=TIMEOUT,
            verify=tls_context(manager_url, ca_file),
            trust_env=not is_this_machine(manager_url),
        )

    def post(self, path: str, body: Value, kind: type[T]) -> T:
        return self._call("POST", path, kind, content=msgspec.json.encode(body))

    def get(
        self, path: str, params: dict[str, Any], kind: type[T], *, wait_s: float = 0.0
    ) -> T:
        """A read that the manager may hold back for `wait_s`."""
        timeout = httpx.Timeout(10.0 + wait_s, connect=3.0)
        return self._call("GET", path, kind, params=params, timeout=timeout)

    def close(self) -> None:
        self._client.close()

    def _call(self, method: str, path: str, kind: type[T], **how: Any) -> T:
        try:
            response = self._client.request(method, path, **how)
        except (httpx.HTTPError, OSError) as error:
            raise errors.Unreachable(
                f"the manager at {self.manager_url} does not answer: {_say(error)}"
            ) from error
        if response.is_success:
            return _read(response, kind)
        raise error_of(response)


def _read(response: httpx.Response, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(response.content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.Unavailable(
            f"{response.url} did not answer as a manager does: {error}"
        ) from None


def error_of(response: httpx.Response) -> errors.CorralError:
    """The exception an error answer stands for, also when a proxy wrote it."""
    is_ours = True
    try:
        told = response.json()["error"]
        code, message = str(told["code"]), str(told["message"])
    except (ValueError, KeyError, TypeError):
        is_ours = False
        code, message = "", f"{response.url} answered {response.status_code}"
    kind = _BY_CODE.get(code) or _BY_STATUS.get(response.status_code)
    if kind is None:
        server = response.status_code >= 500
        kind = errors.Unavailable if server else errors.BadRequest
    return kind(message, status=response.status_code, is_ours=is_ours)


def _say(error: Exception) -> str:
    return str(error) or type(error).__name__
