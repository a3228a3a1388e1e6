"""Which addresses the gateway may reach: every refusal in one place.

A name is resolved once, every address it has is judged, and the caller connects to
those and to nothing else: what a name means later cannot undo the check.
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import Any

import httpx

from corral.core.access.address import (
    Address,
    faces,
    is_allowed,
    is_everybodys,
    reason_against,
)
from corral.errors import InvalidField

_URL_LIMIT = 2048
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """`own` are the (host, port) Corral's own servers listen on.

    When `is_exposed`, only what `allow` names can be a target: a host, an address or
    a network, each with a port or for every port. When `is_private_listed`, that holds
    of addresses that are not everybody's: who names the target is not trusted to know
    what a network inside is for, even where the manager listens on loopback alone,
    since a proxy in front of it may not.
    """

    own: tuple[tuple[str, int], ...] = ()
    allow: tuple[str, ...] = ()
    is_exposed: bool = False
    is_private_listed: bool = False


@dataclass(frozen=True, slots=True)
class Pinned:
    """A URL and the addresses it may be reached at."""

    url: httpx.URL
    addresses: tuple[str, ...]


class NameLookup:
    """Looks names up in threads of its own, so that slow ones hold up nothing else.

    A thread cannot be stopped: who no longer waits for one still counts.
    """

    def __init__(
        self, threads: int = 4, most: int = 400, timeout_s: float = 5.0
    ) -> None:
        self._threads = ThreadPoolExecutor(threads, "corral-names")
        self._most = most
        self._timeout_s = timeout_s
        self.under_way = 0

    async def resolve(self, host: str, port: int) -> list[Address]:
        """Every address of a host, IPv4 first.

        Raises:
            InvalidField: it has none, or is not found in time.
        """
        try:
            return [ip_address(host.partition("%")[0])]
        except ValueError:
            pass  # A name, or one of the spellings only the resolver knows: 0x7f.1
        if self.under_way >= self._most:
            raise _refused(f"{host!r} cannot be resolved: too many names are just now")
        look = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        loop = asyncio.get_running_loop()
        self.under_way += 1
        found = loop.run_in_executor(self._threads, look)
        found.add_done_callback(self._end)
        try:
            async with asyncio.timeout(self._timeout_s):
                rows = await asyncio.shield(found)
        except TimeoutError:
            text = f"{host!r} is not resolved within {self._timeout_s:g} s"
            raise _refused(text) from None
        except (OSError, UnicodeError) as e:
            raise _refused(f"{host!r} cannot be resolved: {e}") from None
        # IPv4 first: "localhost" has two, and most servers listen on that one alone.
        unique = {ip_address(str(row[4][0]).partition("%")[0]): None for row in rows}
        return sorted(unique, key=lambda a: a.version)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _end(self, found: asyncio.Future[Any]) -> None:
        self.under_way -= 1
        if not found.cancelled():
            found.exception()  # Nobody may be there to hear of it.


_GATEWAY = NameLookup()


def parse(text: str) -> httpx.URL:
    """The URL of an app.

    Raises:
        InvalidField: when it is not a plain http or https URL.
    """
    try:
        url = httpx.URL(text if len(text) <= _URL_LIMIT else "")
    except httpx.InvalidURL as e:
        raise _refused(f"it is not a URL: {e}") from None
    if url.scheme not in _PORTS or not url.host:
        raise _refused("it must read http://host:port or https://host:port")
    if not 1 <= port_of(url) <= 65_535:
        raise _refused("there is no such port")
    if url.userinfo or url.query or url.fragment:
        raise _refused("it must have no user, password, query or fragment")
    return url


def port_of(url: httpx.URL) -> int:
    return _PORTS[url.scheme] if url.port is None else url.port


async def pin(text: str, config: GatewayConfig, names: NameLookup = _GATEWAY) -> Pinned:
    """Resolve a URL once and judge every address it has.

    Whose targets many may name brings a resolver of its own.

    Raises:
        InvalidField: when it cannot be resolved, or must not be reached.
    """
    url = parse(text)
    port = port_of(url)
    addresses = await names.resolve(url.host, port)
    for address in addresses:
        for face in faces(address):
            if reason := reason_against(face):
                raise _refused(f"{url.host} is {face}, {reason}")
            if await _is_own(url.host, face, port, config, names):
                raise _refused(f"{url.host}:{port} is one of Corral's own servers")
    if is_allowed(url.host, addresses, port, config.allow):
        return Pinned(url, tuple(str(address) for address in addresses))
    listed = f"{url.host}:{port} is not on the list CORRAL_GATEWAY_ALLOW, and"
    if config.is_exposed:
        raise _refused(f"{listed} this manager listens beyond its own machine")
    if config.is_private_listed and not all(map(is_everybodys, addresses)):
        raise _refused(f"{listed} has an address inside a private network")
    return Pinned(url, tuple(str(address) for address in addresses))


def _refused(why: str) -> InvalidField:
    return InvalidField(f"url: {why}", field="url")


async def _is_own(
    host: str, address: Address, port: int, config: GatewayConfig, names: NameLookup
) -> bool:
    for own_host, own_port in config.own:
        if own_port != port:
            continue
        if own_host.lower() == host.lower() or _is_here(address):
            return True
        try:
            if address in await names.resolve(own_host, own_port):
                return True
        except InvalidField:
            continue
    return False


def _is_here(address: Address) -> bool:
    """Is it an address of this machine? Only those can be listened on."""
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True
