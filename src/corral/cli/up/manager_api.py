"""The few calls `corral up` and `corral down` make to the manager they look after.

By the link of nodes: the client would cost the parent a third of a second.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.errors import CorralError, Forbidden, Unauthenticated, Unreachable
from corral.relay.manager_link import HttpLink, LinkOptions

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
        sent = json.dumps(body or {}).encode()
        try:
            # A connection for each call: they are few, and the manager may be another.
            with contextlib.closing(self._link(timeout_s)) as link:
                return link.ask(method, path, sent).read(dict[str, Any])
        except CorralError as error:
            is_refusal = isinstance(error, Unauthenticated | Forbidden)
            kind = Unauthenticated if is_refusal else Unreachable
            raise kind(f"{self.url}{path}: {error.message}") from error
        except OSError as error:  # its certificate cannot be read
            raise Unreachable(f"no way to {self.url}: {error}") from error

    def _link(self, timeout_s: float) -> HttpLink:
        key = None
        with contextlib.suppress(OSError):
            key = self.key_file.read_text(encoding="utf-8").strip()
        options = LinkOptions(timeout_s, connect_s=timeout_s, by_proxy=False)
        return HttpLink(self.url, key, self.certificate, options)
