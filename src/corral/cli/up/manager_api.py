"""The few calls `corral up` and `corral down` make to the manager they look after.

Plain standard library: the client would cost the parent a third of a second.
"""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from corral.errors import Unauthenticated, Unreachable
from corral.trust import tls_context

_TIMEOUT_S = 5.0
_TOKEN_TTL_S = 600


@dataclass(frozen=True, slots=True)
class LocalManager:
    """The manager at `url`, which serves `certificate` when that is https."""

    url: str
    key_file: Path
    certificate: Path | None = None

    def is_healthy(self) -> bool:
        try:
            told = self._call("GET", "/health", timeout_s=1.0)
        except (Unreachable, Unauthenticated):
            return False
        return bool(told.get("status") == "healthy")

    def join_token(self) -> str:
        """A token that lets one agent in, for ten minutes."""
        told = self._call("POST", "/join-tokens", {"ttl_s": _TOKEN_TTL_S, "uses": 1})
        return str(told["token"])

    def has_online_worker(self) -> bool:
        try:
            return int(self._call("GET", "/workers").get("online", 0)) > 0
        except (Unreachable, Unauthenticated):
            return False

    def drain(self) -> int:
        """Hand out no more work; how many tasks still run."""
        return int(self._call("POST", "/cluster/drain").get("running", 0))

    def _call(
        self, method: str, path: str, body: Any = None, timeout_s: float = _TIMEOUT_S
    ) -> dict[str, Any]:
        link = self._connect(timeout_s)
        headers = {"Content-Type": "application/json", **self._authorization()}
        try:
            link.request(method, path, json.dumps(body or {}), headers)
            answer = link.getresponse()
            told = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unreachable(f"no answer from {self.url}: {error}") from error
        finally:
            link.close()
        return _checked(answer.status, told, self.url + path)

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        place = urlsplit(self.url)
        host = place.hostname or "127.0.0.1"
        if place.scheme != "https":
            return http.client.HTTPConnection(host, place.port, timeout=timeout_s)
        trust = tls_context(self.url, self.certificate)
        return http.client.HTTPSConnection(
            host, place.port, timeout=timeout_s, context=trust
        )

    def _authorization(self) -> dict[str, str]:
        try:
            key = self.key_file.read_text(encoding="utf-8").strip()
        except OSError:
            return {}
        return {"Authorization": f"Bearer {key}"}


def _checked(status: int, told: Any, what: str) -> dict[str, Any]:
    if status < 400 and isinstance(told, dict):
        return told
    error = told.get("error") if isinstance(told, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    if status in (401, 403):
        raise Unauthenticated(f"{what}: {message or 'not allowed'}")
    raise Unreachable(f"{what} answered {status}: {message or 'no reason given'}")
