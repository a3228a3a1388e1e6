"""Writes what a caller passes as JSON, and refuses what JSON cannot carry."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from corral.client.http.endpoint import Request
from corral.errors import InvalidField

_ENCODER = msgspec.json.Encoder()


def encode(value: Any) -> bytes:
    """JSON text of `value`; any frozen value, dataclass, date or UUID may be in it.

    Raises:
        InvalidField: for NaN, infinity, lone surrogates and what has no JSON form.
    """
    try:
        text = _ENCODER.encode(value)
        if b"null" in text:
            # The encoder turns NaN into null without a word.
            json.dumps(msgspec.to_builtins(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise InvalidField(
            f"this cannot be written as JSON: {error}", field="parameters"
        ) from error
    return text


def post(path: str, **fields: Any) -> Request:
    given = {key: value for key, value in fields.items() if value is not None}
    return Request("POST", path, body=encode(given))
