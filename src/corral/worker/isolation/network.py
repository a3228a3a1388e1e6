"""What of the network a job reaches: its own, with a filter, the machine's, or none.

Its own is a namespace that a program of the agent's user carries packets for. It
reaches the world, and neither link-local addresses (where clouds keep the machine's
credentials) nor this machine and the manager's, but for the manager's own port.
"""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

import psutil

from corral.errors import WorkerError

_DEVICE = "/dev/net/tun"
# Where that program has this machine's loopback, and a resolver.
GATEWAY, RESOLVER = "10.0.2.2", "10.0.2.3"
_LINK_LOCAL = ("169.254.0.0/16", "fe80::/10")
_PORTS = {"http": 80, "https": 443}
_lock = threading.Lock()
_works: bool | None = None


class Network(StrEnum):
    OWN = "own"
    HOST = "host"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """`manager` is the URL whose port stays open; `allows_host` an administrator's word
    that jobs may have the machine's own network.
    """

    manager: str = ""
    allows_host: bool = False

    def choose(self, wanted: Network) -> Network:
        """What a job gets that wants this.

        Raises:
            WorkerError: it wants the machine's own, which nobody allowed.
        """
        if wanted is Network.HOST and not self.allows_host:
            raise WorkerError(
                "jobs may not use this node's own network, which members of a gang "
                "need to reach each other: set CORRAL_HOST_NETWORK=1 there"
            )
        if wanted is not Network.OWN or is_there():
            return wanted
        return Network.HOST if self.allows_host else Network.NONE


def is_there() -> bool:
    """Can a job here have a network of its own? Tried for real, once."""
    global _works
    from corral.worker.isolation.start import try_network

    with _lock:
        if _works is None:
            _works = not missing() and try_network()
        return _works


def missing() -> list[str]:
    """What keeps jobs from a network of their own, as far as a look can tell."""
    programs = [name for name in ("slirp4netns", "nft") if _program(name) is None]
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        programs.append(_DEVICE)
    return programs


def plan(policy: NetworkPolicy) -> dict[str, Any]:
    """What the guardian is told to make one, and to carry its packets."""
    return {
        "filter": [_program("nft"), "-f", "-"],
        "rules": rules(policy.manager, _own_addresses()),
        "carry": [_program("slirp4netns"), "--configure", "--mtu=65520"],
    }


def rules(manager: str, here: Iterable[str]) -> str:
    """A table of the kernel's packet filter; a job has no right to change it."""
    closed = [f"  {_to(each)} reject" for each in (*_LINK_LOCAL, GATEWAY, *here)]
    opened = []
    url = urlsplit(manager)
    if url.hostname:
        port = url.port or _PORTS.get(url.scheme, 80)
        for address in _addresses(url.hostname):
            is_here = ipaddress.ip_address(address).is_loopback
            place = _to(GATEWAY if is_here else address)
            opened.append(f"  {place} tcp dport {port} accept")
            closed.append(f"  {place} reject")
    return "\n".join(
        [
            "table inet corral {",
            " chain out {",
            "  type filter hook output priority 0; policy accept;",
            '  oifname "lo" accept',
            f"  ip daddr {RESOLVER} udp dport 53 accept",
            *dict.fromkeys(opened),
            *dict.fromkeys(closed),
            " }",
            "}",
            "",
        ]
    )


def _to(address: str) -> str:
    return f"{'ip6' if ':' in address else 'ip'} daddr {address}"


def _addresses(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys(str(each[4][0]).partition("%")[0] for each in found))


def _own_addresses() -> Iterator[str]:
    for found in psutil.net_if_addrs().values():
        for each in found:
            if each.family in (socket.AF_INET, socket.AF_INET6):
                address = each.address.partition("%")[0]
                if not ipaddress.ip_address(address).is_link_local:
                    yield address


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join((os.defpath, "/usr/sbin", "/sbin")))
