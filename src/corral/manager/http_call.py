"""Calls to outside servers of which the status is all that counts.

The bare transport: a client around it would double what a call costs, and a proxy of
the environment would connect elsewhere than was checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass

import httpx

from corral.trust import tls_context

Headers = Mapping[str, str]
_ANSWER_BYTES = 64 * 1024
_OWN_HEADERS = {"content-type": "application/json", "user-agent": "corral"}


@dataclass(frozen=True, slots=True)
class CallResult:
    """What came of a call, and in words; `status` is 0 where nothing was answered."""

    status: int
    words: str
    is_late: bool = False

    @property
    def is_taken(self) -> bool:
        return 200 <= self.status < 300


class HttpCaller:
    """Opened with the first call; `close` in the end."""

    def __init__(self, url: str, timeout_s: float, most_calls: int) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._most_calls = most_calls
        self._http: httpx.AsyncHTTPTransport | None = None

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    async def send(
        self, method: str, url: str, body: bytes, headers: Headers, address: str = ""
    ) -> int:
        """The status of the answer; `address` is called in the place of the host.

        The answer is read to its end, so that the connection can be used again. A long
        one is cut off: nobody waits for what is not looked at.
        """
        target = httpx.URL(url)
        own = {"host": target.netloc.decode("ascii"), **_OWN_HEADERS}
        request = httpx.Request(
            method,
            target.copy_with(host=address) if address else target,
            headers=httpx.Headers({**own, **headers}, encoding="utf-8"),
            content=body,
            extensions={
                "timeout": httpx.Timeout(self._timeout_s).as_dict(),
                "sni_hostname": target.host,
            },
        )
        if self._http is None:
            self._http = httpx.AsyncHTTPTransport(
                limits=httpx.Limits(max_connections=self._most_calls),
                verify=tls_context(self._url, None),
                trust_env=False,
            )
        answer = await self._http.handle_async_request(request)
        try:
            size = 0
            async for part in answer.aiter_raw():
                size += len(part)
                if size > _ANSWER_BYTES:
                    break
        finally:
            await answer.aclose()
        return answer.status_code

    async def attempt(self, call: Awaitable[int]) -> CallResult:
        """What comes of a call, of one `send` or of several, in the time it has."""
        try:
            async with asyncio.timeout(self._timeout_s):
                status = await call
        except TimeoutError:
            return CallResult(0, f"no answer within {self._timeout_s:g} s", True)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return CallResult(0, str(error) or type(error).__name__)
        return CallResult(status, f"it answered {status}")
