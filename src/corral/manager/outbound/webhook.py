"""Calls of webhooks: signed, and only where they may lead. When is not decided here."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from dataclasses import dataclass, field

import httpx

from corral.core.tasks.options import NO_TRACE, Trace
from corral.core.tasks.retry import RetryPolicy
from corral.errors import InvalidField
from corral.manager.http_call import read_away
from corral.manager.outbound.address import GatewayConfig, pin
from corral.trust import tls_context

GONE = "it answered 410"
"""The receiver is gone for good, and says so."""


@dataclass(frozen=True, slots=True)
class NotifyConfig:
    """`secret` signs what is sent; `reach` says which addresses may be called."""

    secret: str
    reach: GatewayConfig = field(default_factory=GatewayConfig)
    timeout_s: float = 15.0
    give_up_s: float = 86_400.0
    backoff: RetryPolicy = field(
        default_factory=lambda: RetryPolicy(base_s=5.0, cap_s=3600.0)
    )


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
        self._most_calls = most_calls
        self._http: httpx.AsyncHTTPTransport | None = None

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    async def post(self, url: str, body: bytes, facts: WebhookFacts) -> str | None:
        """None once the receiver has it, else what went wrong."""
        try:
            async with asyncio.timeout(self._config.timeout_s):
                status = await self._post(url, body, facts)
        except TimeoutError:
            return f"no answer within {self._config.timeout_s:g} s"
        except InvalidField as error:
            return error.message.removeprefix("url: ")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return str(error) or type(error).__name__
        return None if 200 <= status < 300 else f"it answered {status}"

    async def _post(self, url: str, body: bytes, facts: WebhookFacts) -> int:
        # Resolved for each call, and called at just those addresses: what a name
        # means by now cannot undo the check.
        pinned = await pin(root_of(url), self._config.reach)
        *firsts, last = pinned.addresses
        for address in firsts:
            try:
                return await self._post_to(address, url, body, facts)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await self._post_to(last, url, body, facts)

    async def _post_to(
        self, address: str, url: str, body: bytes, facts: WebhookFacts
    ) -> int:
        target = httpx.URL(url)
        request = httpx.Request(
            "POST",
            target.copy_with(host=address),
            headers=[
                ("host", target.netloc.decode("ascii")),
                *self._headers(body, facts),
            ],
            content=body,
            extensions={
                "timeout": httpx.Timeout(self._config.timeout_s).as_dict(),
                "sni_hostname": target.host,
            },
        )
        answer = await self._open().handle_async_request(request)
        return await read_away(answer)

    def _headers(self, body: bytes, facts: WebhookFacts) -> list[tuple[str, str]]:
        return [
            ("content-type", "application/json"),
            ("user-agent", "corral"),
            ("x-corral-event", facts.event),
            ("x-corral-delivery", facts.delivery),
            ("x-corral-try", str(facts.number)),
            ("x-corral-signature", f"sha256={signature(self._config.secret, body)}"),
            *facts.trace.headers.items(),
        ]

    def _open(self) -> httpx.AsyncHTTPTransport:
        if self._http is None:
            # A proxy of the environment would connect elsewhere than was checked.
            self._http = httpx.AsyncHTTPTransport(
                limits=httpx.Limits(max_connections=self._most_calls),
                verify=tls_context("https://", None),
                trust_env=False,
            )
        return self._http


def signature(secret: str, body: bytes) -> str:
    """HMAC-SHA256 of the body under the text of the secret, as hex."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def root_of(url: str) -> str:
    """Scheme, host and port: what is judged, and what calls are shared out by."""
    scheme, _, rest = url.partition("://")
    for end in "/?#":
        rest = rest.partition(end)[0]
    return f"{scheme}://{rest}"
