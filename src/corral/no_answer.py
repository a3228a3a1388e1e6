"""Why a server gave no useful answer, as words that can be acted on.

Stands below `store` and `engine`, which both ask servers, and knows neither. It is no
part of `core`, because it knows sockets.
"""

from __future__ import annotations

import socket
import ssl
from enum import StrEnum


class NoAnswerReason(StrEnum):
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


def no_answer_reason(error: BaseException | None) -> NoAnswerReason:
    """What an error of the system or the network means, whatever is wrapped around."""
    seen = 0
    while error is not None and seen < 10:
        found = _known(error)
        if found is not None:
            return found
        error, seen = error.__cause__ or error.__context__, seen + 1
    return NoAnswerReason.OTHER


def _known(error: BaseException) -> NoAnswerReason | None:
    # The order counts: most of these are kinds of OSError.
    if isinstance(error, socket.gaierror):
        return NoAnswerReason.UNKNOWN_HOST
    if isinstance(error, ssl.SSLCertVerificationError):
        return NoAnswerReason.UNTRUSTED
    if isinstance(error, TimeoutError):
        return NoAnswerReason.SLOW
    if isinstance(error, ConnectionRefusedError | FileNotFoundError):
        return NoAnswerReason.REFUSED
    if isinstance(error, PermissionError):
        return NoAnswerReason.LOGIN
    return None
