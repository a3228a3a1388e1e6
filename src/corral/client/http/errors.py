"""Turns answers and silences into the exceptions of corral.errors.

The answer's `code` picks the class, so that a caller catches what the manager raised.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from corral import errors
from corral.client.http.endpoint import NoAnswer, Response

T = TypeVar("T")


def class_of(code: str) -> type[errors.CorralError]:
    """The exception whose `code` this is; the base when the code is a new one."""
    return errors.BY_CODE.get(code, errors.CorralError)


class _Problem(msgspec.Struct):
    message: str
    code: str = ""
    details: Any = None
    request_id: str | None = None


class _Envelope(msgspec.Struct):
    error: _Problem


def as_error(response: Response, url: str) -> errors.CorralError:
    """The exception an answer of 400 or more stands for.

    It carries `.status` (the HTTP code) and `.request_id`, beside the facts the
    manager gave in `.details`.
    """
    request_id = response.headers.get("x-request-id")
    try:
        fault = msgspec.json.decode(response.body, type=_Envelope).error
    except msgspec.DecodeError:
        return _stamp(_foreign(response, url), response.status, request_id)
    error = class_of(fault.code)(fault.message)
    if isinstance(fault.details, dict):
        error.details.update(fault.details)
    return _stamp(error, response.status, fault.request_id or request_id)


def _foreign(response: Response, url: str) -> errors.CorralError:
    # A proxy that has lost the manager, or another program on this port.
    kind = errors.Unavailable if response.status >= 500 else errors.CorralError
    return kind(
        f"{url} answered {response.status}, but not as Corral does: "
        "check the address (CORRAL_MANAGER_URL)"
    )


def unreachable(url: str, lost: NoAnswer) -> errors.Unreachable:
    text = f"cannot reach Corral at {url}: start it with 'corral up' or set "
    text += "CORRAL_MANAGER_URL"
    if "CERTIFICATE" in lost.reason:
        text = f"cannot trust Corral at {url} ({lost.reason}): name the file with "
        text += "its certificate in SSL_CERT_FILE"
    elif lost.was_sent:
        text = f"Corral at {url} does not answer ({lost.reason}): is it still up?"
    error = errors.Unreachable(text, url=url, reason=lost.reason)
    _stamp(error, None, None)
    return error


def _stamp(
    error: errors.CorralError, status: int | None, request_id: str | None
) -> errors.CorralError:
    # Attributes, not details: a detail may be called `status` as well.
    error.__dict__.update(status=status, request_id=request_id)
    return error


def decode(response: Response, kind: type[T], *, strict: bool = True) -> T:
    """The body as `kind`; `strict` is as msgspec has it.

    A result may hold what only Python's own reader takes (a lone surrogate, a number
    beyond a double): then the slow way is gone.
    """
    try:
        return msgspec.json.decode(response.body, type=kind, strict=strict)
    except msgspec.DecodeError:
        pass
    try:
        return msgspec.convert(json.loads(response.body), kind, strict=strict)
    except ValueError as error:
        raise errors.Unavailable(
            f"the answer is not one Corral gives ({error}): "
            "check the address (CORRAL_MANAGER_URL)"
        ) from error
