"""Tickets: browsers cannot send a key with a WebSocket or an EventSource, and a key
must not stand in a URL. A ticket may: it is good once, and for a moment.
"""

from __future__ import annotations

import hashlib
import secrets

from corral.core.access.key import Key
from corral.errors import RateLimited, Unauthenticated
from corral.manager.clock import Clock

GOOD_S = 30.0
_MOST = 10_000


class Tickets:
    """In memory only, by the digest of their text; `source` is where others are."""

    def __init__(
        self, clock: Clock, good_s: float = GOOD_S, source: str = "POST /events/ticket"
    ) -> None:
        self._clock = clock
        self._good_s = good_s
        self._source = source
        self._all: dict[str, tuple[float, Key]] = {}

    def issue(self, key: Key) -> str:
        """A ticket for whoever has this key.

        Raises:
            RateLimited: too many are open.
        """
        now = self._clock.monotonic()
        # Those made first are over first.
        while self._all and next(iter(self._all.values()))[0] <= now:
            del self._all[next(iter(self._all))]
        if len(self._all) >= _MOST:
            raise RateLimited("too many tickets are open; wait", retry_after_s=5)
        text = secrets.token_urlsafe(32)
        self._all[_digest(text)] = (now + self._good_s, key)
        return text

    def use(self, text: str) -> Key:
        """Whose ticket this is; it is no longer good then.

        Raises:
            Unauthenticated: it was used, is over, or never was.
        """
        until, key = self._all.pop(_digest(text), (0.0, None))
        if key is None or until <= self._clock.monotonic():
            raise Unauthenticated(
                f"this ticket was used or is over: get another from {self._source}"
            )
        return key


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
