"""Managers on the local network by mDNS: announcing one, and finding them.

What is found is only an address. Before a token is sent there, whoever answers must
prove to know it, and to be at that address; where it says https, its certificate must
verify, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from corral import __version__

if TYPE_CHECKING:
    from zeroconf import ServiceInfo, Zeroconf

    from corral.settings import Settings

log = logging.getLogger("corral")
SERVICE = "_corral._tcp.local."
LISTEN_S = 3.0
_CONNECT_S = 1.0
_ASK_MS = 2000


@dataclass(frozen=True, slots=True)
class FoundManager:
    """A manager that announces itself."""

    cluster: str
    url: str
    version: str

    def __str__(self) -> str:
        return f"{self.cluster} at {self.url} (version {self.version or 'unknown'})"


@contextlib.asynccontextmanager
async def announced(config: Settings) -> AsyncIterator[None]:
    """Let machines on the local network find this manager, if the settings say so."""
    if not config.discovery:
        yield
        return
    telling = asyncio.create_task(_announce(config))
    try:
        yield
    finally:
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await telling


async def _announce(config: Settings) -> None:
    from zeroconf import IPVersion, NonUniqueNameException
    from zeroconf.asyncio import AsyncZeroconf

    addresses = own_addresses(config.host)
    if not addresses:
        log.warning(
            "discovery: not announced, since the manager listens on %s alone; "
            "set CORRAL_HOST to an address of the local network",
            config.host,
        )
        return
    is_6 = ":" in addresses[0]
    try:
        mouth = AsyncZeroconf(
            interfaces=addresses,
            ip_version=IPVersion.V6Only if is_6 else IPVersion.V4Only,
        )
    except OSError as error:
        log.warning("discovery: cannot speak on %s: %s", ", ".join(addresses), error)
        return
    try:
        info = _service(config, addresses)
        await (await mouth.async_register_service(info, allow_name_change=True))
        log.info("discovery: announced as %s", info.name.removesuffix(f".{SERVICE}"))
        await asyncio.Event().wait()
    except (OSError, NonUniqueNameException) as error:
        log.warning("discovery: not announced: %s", error)
    finally:
        await mouth.async_unregister_all_services()
        await mouth.async_close()


def own_addresses(host: str) -> list[str]:
    """The addresses others can reach a manager by that listens on `host`."""
    import psutil

    from corral.settings import is_loopback

    bare = host.strip("[]")
    if bare not in ("0.0.0.0", "::", ""):
        with contextlib.suppress(OSError):
            bare = str(socket.getaddrinfo(bare, None)[0][4][0])
        return [] if is_loopback(bare) else [bare]
    found = [
        address.address
        for card in psutil.net_if_addrs().values()
        for address in card
        if address.family == socket.AF_INET and not is_loopback(address.address)
    ]
    return sorted(set(found))


def _service(config: Settings, addresses: list[str]) -> ServiceInfo:
    from zeroconf import ServiceInfo

    host = socket.gethostname().partition(".")[0][:20]
    told = {
        "cluster": config.cluster_name,
        "version": __version__,
        "tls": "1" if config.ssl_cert_path else "0",
        "url": config.manager_url if "manager_url" in config.origins else "",
    }
    return ServiceInfo(
        SERVICE,
        f"{config.cluster_name[:24]} {host} {config.port}.{SERVICE}",
        port=config.port,
        properties={name: value for name, value in told.items() if value},
        server=f"corral-{host}-{config.port}.local.",
        parsed_addresses=addresses,
    )


def find(cluster: str | None = None, listen_s: float = LISTEN_S) -> list[FoundManager]:
    """The managers that announce themselves here, or those of one cluster."""
    from zeroconf import IPVersion, ServiceBrowser, Zeroconf

    names: set[str] = set()
    ear = Zeroconf(ip_version=IPVersion.V4Only)
    try:
        browser = ServiceBrowser(
            ear, SERVICE, handlers=[lambda name, **_: names.add(name)]
        )
        # Nobody says how many there are: all that can be done is listen a while.
        threading.Event().wait(listen_s)
        browser.cancel()
        found = {seen for name in sorted(names) for seen in _ask(ear, name)}
    finally:
        ear.close()
    wanted = [f for f in found if cluster in (None, f.cluster)]
    return sorted(wanted, key=lambda f: (f.cluster, f.url))


def _ask(ear: Zeroconf, name: str) -> list[FoundManager]:
    info = ear.get_service_info(SERVICE, name, timeout=_ASK_MS)
    if info is None:
        return []
    told = {
        key.decode(errors="replace"): (value or b"").decode(errors="replace")
        for key, value in info.properties.items()
    }
    seen = read(told, info.parsed_addresses(), info.port or 0)
    return [seen] if seen is not None else []


def read(
    told: Mapping[str, str], addresses: Iterable[str], port: int
) -> FoundManager | None:
    """What an announcement says; None when it makes no sense."""
    scheme = "https" if told.get("tls") == "1" else "http"
    url = told.get("url") or ""
    if not url:
        places = [f"[{a}]" if ":" in a else a for a in addresses]
        url = next((f"{scheme}://{p}:{port}" for p in _answering(places, port)), "")
    words = (url, told.get("cluster", ""), told.get("version", ""))
    parts = urlsplit(url)
    is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
    if not is_url or not all(word.isprintable() for word in words):
        return None
    return FoundManager(words[1], url, words[2])


def _answering(places: list[str], port: int) -> Iterable[str]:
    """Those that take a connection, or all when none does."""
    if len(places) < 2:
        return places
    return [p for p in places if _is_open(p, port)] or places


def _is_open(place: str, port: int) -> bool:
    try:
        with socket.create_connection((place.strip("[]"), port), _CONNECT_S):
            return True
    except OSError:
        return False


def proves(url: str, token: str, ca_file: Path | None = None) -> bool:
    """Does the manager at this URL know the token? It is not sent there.

    Raises:
        CorralError: it does not answer, or not as a manager does.
    """
    from corral.core.access.key import digest_secret, join_proof, split_key
    from corral.relay.manager_link import HttpLink, LinkOptions
    from corral.wire.agent import JoinProof

    parts = split_key(token)
    if parts is None:
        return False
    token_id, secret = parts
    nonce = secrets.token_hex(16)
    # Not by a proxy: that would be another address than the one that was found.
    link = HttpLink(url, None, ca_file, LinkOptions(by_proxy=False))
    try:
        params = {"token_id": token_id, "nonce": nonce}
        told = link.get("/nodes/join/proof", params, JoinProof)
    finally:
        link.close()
    expected = join_proof(digest_secret(secret), token_id, nonce, told.addresses)
    is_known = hmac.compare_digest(told.proof.encode(), expected.encode())
    return is_known and any(_is_same(url, address) for address in told.addresses)


def _is_same(url: str, address: str) -> bool:
    """Is this the place of the URL? An address is a URL, or HOST:PORT."""
    one = urlsplit(url)
    other = urlsplit(address if "://" in address else f"{one.scheme}://{address}")
    try:
        ports = _port(one) == _port(other)
    except ValueError:
        return False
    return ports and one.scheme == other.scheme and one.hostname == other.hostname


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)
