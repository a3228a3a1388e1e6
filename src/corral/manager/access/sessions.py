"""Sessions of browsers: a signed word in a cookie stands for a key, for some hours.

It is good as long as the key is. Nothing is stored but the sessions that were ended
before their time, by their digest; a manager that begins anew knows the others by
their signature.

Tickets: browsers cannot send a key with a WebSocket or an EventSource, and a key must
not stand in a URL. A ticket may: it is good once, and for a moment.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from corral.core.access.key import Key
from corral.errors import RateLimited, Unauthenticated
from corral.manager.access.keys import Keys
from corral.manager.clock import Clock
from corral.manager.context import ManagerContext
from corral.store.base import AccessStore

T = TypeVar("T")
GOOD_S = 30.0
_MOST = 10_000
LIFE_S = 12 * 3600.0
LINK_S = 120.0


class Sessions:
    """`links` are tickets that begin a session, each once."""

    def __init__(self, ctx: ManagerContext, keys: Keys) -> None:
        self._keys = keys
        self._clock = ctx.clock
        self._secret = hmac.digest(ctx.secret, b"session", "sha256")
        self._store: AccessStore = ctx.store.access
        self._ended: dict[str, datetime] = {}
        self.links: Tickets[Key] = Tickets(ctx.clock, LINK_S, "corral dashboard")
        # Cookies know no ports: two clusters on one machine must not share one.
        self.cookie = f"corral_{hashlib.sha256(self._secret).hexdigest()[:8]}"

    async def load(self) -> None:
        self._ended = dict(await self._store.ended_sessions())

    def begin(self, key: Key) -> tuple[str, datetime]:
        """The word for the cookie, and until when it is good."""
        until = self._clock.now() + timedelta(seconds=LIFE_S)
        if key.expires_at is not None:
            until = min(until, key.expires_at)
        body = f"{key.id}.{int(until.timestamp())}.{secrets.token_hex(12)}"
        return f"{body}.{self._sign(body)}", until

    def read(self, text: str) -> Key:
        """The key that a session stands for.

        Raises:
            Unauthenticated: it is over, or none of ours.
        """
        body, until = self._opened(text)
        key = self._keys.of_id(body.partition(".")[0])
        is_over = until <= self._clock.now().timestamp() or _digest(body) in self._ended
        if key is None or is_over:
            raise Unauthenticated("your session is over: sign in again")
        return key

    def until(self, text: str) -> datetime:
        """When this session is over. Raises Unauthenticated."""
        return datetime.fromtimestamp(self._opened(text)[1], UTC)

    async def end(self, text: str) -> None:
        """From now on this session is nobody's, also for a manager that begins anew.

        Raises:
            Unauthenticated: it is none of ours.
            StoreUnavailable: only this manager will know.
        """
        body, _ = self._opened(text)
        now, until = self._clock.now(), self.until(text)
        self._ended = {word: at for word, at in self._ended.items() if at > now}
        self._ended[_digest(body)] = until
        await self._store.end_session(_digest(body), until, now)

    def _opened(self, text: str) -> tuple[str, int]:
        body, _, signature = text.rpartition(".")
        is_ours = text.isascii() and hmac.compare_digest(signature, self._sign(body))
        if not is_ours:
            raise Unauthenticated("this session is not known: sign in again")
        return body, int(body.split(".")[1])

    def _sign(self, body: str) -> str:
        return hmac.new(self._secret, body.encode(), "sha256").hexdigest()


class Tickets(Generic[T]):
    """In memory only, by the digest of their text; `source` is where others are."""

    def __init__(
        self, clock: Clock, good_s: float = GOOD_S, source: str = "POST /events/ticket"
    ) -> None:
        self._clock = clock
        self._good_s = good_s
        self._source = source
        self._all: dict[str, tuple[float, T]] = {}

    def issue(self, holder: T) -> str:
        """A ticket for whoever has this key, or is this holder.

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
        self._all[_digest(text)] = (now + self._good_s, holder)
        return text

    def look(self, text: str) -> T:
        """Whose ticket this is; it stays good. Raises Unauthenticated."""
        until, holder = self._all.get(_digest(text), (0.0, None))
        return self._checked(until, holder)

    def use(self, text: str) -> T:
        """Whose ticket this is; it is no longer good then.

        Raises:
            Unauthenticated: it was used, is over, or never was.
        """
        until, holder = self._all.pop(_digest(text), (0.0, None))
        return self._checked(until, holder)

    def _checked(self, until: float, holder: T | None) -> T:
        if holder is None or until <= self._clock.monotonic():
            raise Unauthenticated(
                f"this ticket was used or is over: get another from {self._source}"
            )
        return holder


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
