"""Bodies of requests as values, complaints with the field named; values as answers."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from fastapi import Request, Response

from corral.errors import InvalidField, InvalidJson

T = TypeVar("T")


def decode(body: bytes, kind: type[T]) -> T:
    """The body as `kind`.

    Raises:
        InvalidJson, InvalidField: in words the sender can act on.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as e:
        raise wrong_field(e, "body") from e
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as e:
        raise InvalidJson(f"the body is not valid JSON: {e}") from e


def wrong_field(error: msgspec.ValidationError, whole: str) -> InvalidField:
    """The complaint with the field it names; `whole` when it names none."""
    text = str(error)
    place = text.rpartition("`$")[2].rstrip("`").lstrip(".") if "`$" in text else ""
    missing = re.search(r"(?:required|unknown) field `([^`]*)`", text)
    return InvalidField(text, field=missing[1] if missing else place or whole)


async def read(request: Request, kind: type[T]) -> T:
    return decode(await request.body(), kind)


def answer(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def plain(text: str | None, field: str) -> str | None:
    """A short text on one line, as it is."""
    if text and (len(text) > 255 or not text.isprintable()):
        raise InvalidField(f"{field} must be at most 255 letters", field=field)
    return text
