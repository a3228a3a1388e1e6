"""Why a server gave no useful answer, as words that can be acted on."""

from __future__ import annotations

import socket
import ssl
from enum import StrEnum


class Silence(StrEnum):
    """`CROWDED`: no connection to spare. `STRANGER`: another program is there."""

    REFUSED = "refused"
    UNKNOWN_HOST = "unknown_host"
    SLOW = "slow"
    UNTRUSTED = "untrusted"
    STRANGER = "stranger"
    LOGIN = "login"
    ABSENT = "absent"
    STARTING = "starting"
    CROWDED = "crowded"
    OTHER = "other"


def silence_of(error: BaseException | None) -> Silence:
    """What an error of the system or the network means, whatever is wrapped around."""
    seen = 0
    while error is not None and seen < 10:
        found = _known(error)
        if found is not None:
            return found
        error, seen = error.__cause__ or error.__context__, seen + 1
    return Silence.OTHER


def _known(error: BaseException) -> Silence | None:
    # The order counts: most of these are kinds of OSError.
    if isinstance(error, socket.gaierror):
        return Silence.UNKNOWN_HOST
    if isinstance(error, ssl.SSLCertVerificationError):
        return Silence.UNTRUSTED
    if isinstance(error, TimeoutError):
        return Silence.SLOW
    if isinstance(error, ConnectionRefusedError | FileNotFoundError):
        return Silence.REFUSED
    if isinstance(error, PermissionError):
        return Silence.LOGIN
    return None
