"""Whom to believe on the other end of https: one rule for client, agent and worker."""

from __future__ import annotations

import ipaddress
import ssl
from pathlib import Path
from urllib.parse import urlsplit


def is_this_machine(url: str) -> bool:
    """Is the address one that never leaves this machine?"""
    return is_loopback_name(urlsplit(url).hostname or "")


def name_of_host(host: str) -> str:
    """The name or address in a `Host` header, in small letters, without its port."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return host.lower()
    return name.removesuffix(".")


def is_address(name: str) -> bool:
    """Is it an IP address? Nobody can make one lead elsewhere, as they can a name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback_name(name: str) -> bool:
    """Does a name or address, without a port, never leave this machine?"""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def tls_context(url: str, ca_file: str | Path | None) -> ssl.SSLContext:
    """The context for calls to `url`; `ca_file` is trusted beside the system's.

    On this machine a given file is believed alone and whatever names stand in it: the
    manager's certificate is made out for how others call it.
    """
    if urlsplit(url).scheme != "https":
        # Never used; reading the system's certificates costs more than a call.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca_file is not None and is_this_machine(url):
        context = ssl.create_default_context(cafile=ca_file)
        context.check_hostname = False
    else:
        context = ssl.create_default_context()
        if ca_file is not None:
            context.load_verify_locations(cafile=ca_file)
    # The manager's own certificate may be given, not only that of its authority.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
