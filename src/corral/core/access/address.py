"""Addresses as values: which are nobody's to call, which everybody's, which a list has.

Whoever calls resolves a name once and calls just what was judged here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

Address = IPv4Address | IPv6Address
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


def is_everybodys(address: Address) -> bool:
    """No address inside somebody's network, in any spelling."""
    return all(face.is_global for face in faces(address))


def faces(address: Address) -> Iterator[Address]:
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


def reason_against(address: Address) -> str | None:
    """Why nobody may call it, whatever any list says."""
    if address.is_link_local or address in _METADATA:
        return "a link-local or metadata address"
    is_nobody = address.is_multicast or address.is_unspecified
    if isinstance(address, IPv4Address):
        is_nobody |= address.is_reserved or address in _THIS_NETWORK
    return "no address of one server" if is_nobody else None


def is_allowed(
    host: str, addresses: Iterable[Address], port: int, allow: Iterable[str]
) -> bool:
    """Does a list name the host, or networks that have all its addresses?"""
    known = list(addresses)
    for entry in allow:
        name, network, only_port = read_allowed(entry)
        if only_port not in (None, port):
            continue
        if network is None and name == host.lower().rstrip("."):
            return True
        if network is not None and known and all(_plain(a) in network for a in known):
            return True
    return False


def _plain(address: Address) -> Address:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def same_address(one: str, other: str) -> bool:
    """Are they the same address, however they are written? Names are not looked up."""
    try:
        return _plain(ip_address(one)) == _plain(ip_address(other))
    except ValueError:
        return False


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
