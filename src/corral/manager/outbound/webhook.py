"""Calls of webhooks: signed, and only where they may lead. When is not decided here."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import httpx

from corral.core.backoff import Backoff
from corral.core.insight.event import Event
from corral.core.tasks.options import NO_TRACE, Trace
from corral.errors import InvalidField
from corral.manager.http_call import HttpCaller
from corral.manager.outbound.address import GatewayConfig, NameLookup, pin

GONE = "it answered 410"
"""The receiver is gone for good, and says so."""


_BACKOFF = Backoff(base_s=5.0, cap_s=3600.0)


@dataclass(frozen=True, slots=True)
class NotifyConfig:
    """`secret` signs what is sent; `reach` says which addresses may be called."""

    secret: str
    reach: GatewayConfig = field(default_factory=GatewayConfig)
    timeout_s: float = 15.0
    give_up_s: float = 86_400.0
    backoff: Backoff = _BACKOFF


@dataclass(frozen=True, slots=True)
class WebhookFacts:
    """What the headers of a call tell; `delivery` is the same on every try."""

    event: str
    delivery: str
    number: int = 1
    trace: Trace = NO_TRACE


class WebhookSender:
    """Brings bodies to receivers; `close` in the end."""

    def __init__(self, config: NotifyConfig, most_calls: int) -> None:
        self._config = config
        self._http = HttpCaller("https://", config.timeout_s, most_calls)
        self._names = NameLookup()

    async def close(self) -> None:
        await self._http.close()
        self._names.close()

    async def post(self, url: str, body: bytes, facts: WebhookFacts) -> str | None:
        """None once the receiver has it, else what went wrong."""
        try:
            result = await self._http.attempt(self._post(url, body, facts))
        except InvalidField as error:
            return error.message.removeprefix("url: ")
        return None if result.is_taken else result.words

    def is_over(self, trouble: str, since: datetime, due: datetime) -> bool:
        """Is it given up? It was first tried then, and would be tried next then."""
        limit = timedelta(seconds=self._config.give_up_s)
        return trouble == GONE or due - since > limit

    async def _post(self, url: str, body: bytes, facts: WebhookFacts) -> int:
        # Resolved for each call, and called at just those addresses: what a name
        # means by now cannot undo the check.
        pinned = await pin(root_of(url), self._config.reach, self._names)
        *firsts, last = pinned.addresses
        headers = self._headers(body, facts)
        for address in firsts:
            try:
                return await self._http.send(
                    "POST", url, body, headers, address=address
                )
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await self._http.send("POST", url, body, headers, address=last)

    def _headers(self, body: bytes, facts: WebhookFacts) -> dict[str, str]:
        return {
            "x-corral-event": facts.event,
            "x-corral-delivery": facts.delivery,
            "x-corral-try": str(facts.number),
            "x-corral-signature": f"sha256={signature(self._config.secret, body)}",
            **facts.trace.headers,
        }


def signature(secret: str, body: bytes) -> str:
    """HMAC-SHA256 of the body under the text of the secret, as hex."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def failed(title: str, root: str, tries: int, trouble: str) -> Event:
    """What the history says of a receiver that is given up."""
    data = {"receiver": root, "tries": tries, "reason": trouble}
    return Event("webhook_failed", title, "warning", data=data)


def root_of(url: str) -> str:
    """Scheme, host and port: what is judged, and what calls are shared out by."""
    scheme, _, rest = url.partition("://")
    for end in "/?#":
        rest = rest.partition(end)[0]
    return f"{scheme}://{rest}"
