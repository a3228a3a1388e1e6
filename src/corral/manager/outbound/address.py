"""Which addresses the gateway may reach: every refusal in one place.

A name is resolved once, every address it has is judged, and the caller connects to
those and to nothing else: what a name means later cannot undo the check.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Any

import httpx

from corral.errors import InvalidField

Address = IPv4Address | IPv6Address
_URL_LIMIT = 2048
_PORTS = {"http": 80, "https": 443}
# Clouds answer here with the machine's own credentials; link-local ones are refused
# as such.
_METADATA: frozenset[Address] = frozenset(
    {
        ip_address("100.100.100.200"),
        ip_address("168.63.129.16"),
        ip_address("192.0.0.192"),
        ip_address("fd00:ec2::254"),
        ip_address("fd20:ce::254"),
    }
)
_NAT64 = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))
_THIS_NETWORK = ip_network("0.0.0.0/8")
_COMPATIBLE = ip_network("::/96")


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


class Resolver:
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


_GATEWAY = Resolver()


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


async def pin(text: str, config: GatewayConfig, names: Resolver = _GATEWAY) -> Pinned:
    """Resolve a URL once and judge every address it has.

    Whose targets many may name brings a resolver of its own.

    Raises:
        InvalidField: when it cannot be resolved, or must not be reached.
    """
    url = parse(text)
    port = port_of(url)
    addresses = await names.resolve(url.host, port)
    for address in addresses:
        for face in _faces(address):
            if reason := _refusal(face):
                raise _refused(f"{url.host} is {face}, {reason}")
            if await _is_own(url.host, face, port, config, names):
                raise _refused(f"{url.host}:{port} is one of Corral's own servers")
    if _is_allowed(url.host, addresses, port, config.allow):
        return Pinned(url, tuple(str(address) for address in addresses))
    listed = f"{url.host}:{port} is not on the list CORRAL_GATEWAY_ALLOW, and"
    if config.is_exposed:
        raise _refused(f"{listed} this manager listens beyond its own machine")
    if config.is_private_listed and not all(map(_is_everybodys, addresses)):
        raise _refused(f"{listed} has an address inside a private network")
    return Pinned(url, tuple(str(address) for address in addresses))


def _refused(why: str) -> InvalidField:
    return InvalidField(f"url: {why}", field="url")


def _is_everybodys(address: Address) -> bool:
    return all(face.is_global for face in _faces(address))


def _faces(address: Address) -> Iterator[Address]:
    """The address, and every other one that is written inside it."""
    yield address
    if isinstance(address, IPv4Address):
        return
    low = IPv4Address(int(address) & 0xFFFF_FFFF)
    if address.ipv4_mapped:
        yield address.ipv4_mapped
    if address.sixtofour:
        yield address.sixtofour
    if address.teredo:
        yield from address.teredo
    if any(address in network for network in _NAT64):
        yield low
    if address in _COMPATIBLE and int(address) > 1:
        yield low


def _refusal(address: Address) -> str | None:
    if address.is_link_local or address in _METADATA:
        return "a link-local or metadata address"
    is_nobody = address.is_multicast or address.is_unspecified
    if isinstance(address, IPv4Address):
        is_nobody |= address.is_reserved or address in _THIS_NETWORK
    return "no address of one server" if is_nobody else None


async def _is_own(
    host: str, address: Address, port: int, config: GatewayConfig, names: Resolver
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


def _is_allowed(
    host: str, addresses: list[Address], port: int, allow: tuple[str, ...]
) -> bool:
    for entry in allow:
        name, network, only_port = read_allowed(entry)
        if only_port not in (None, port):
            continue
        if network is None and name == host.lower().rstrip("."):
            return True
        if network is not None and all(_plain(a) in network for a in addresses):
            return True
    return False


def _plain(address: Address) -> Address:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def read_allowed(
    entry: str,
) -> tuple[str, IPv4Network | IPv6Network | None, int | None]:
    """(name, network, port) of one entry of the list; a network has its name, too."""
    found = re.fullmatch(r"(\[[^\]]+\](?:/\d+)?|[^:]+)(?::(\d{1,5}))?", entry.strip())
    host, port = (found[1], found[2]) if found else (entry.strip(), None)
    name = host.replace("[", "").replace("]", "").lower().rstrip(".")
    try:
        network = ip_network(name, strict=False)
    except ValueError:
        return name, None, int(port) if port else None
    return name, network, int(port) if port else None
