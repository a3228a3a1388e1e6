"""Bodies of requests as values, complaints with the field named; values as answers."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Any, TypeVar

import msgspec
from fastapi import Request, Response

from corral.errors import InvalidField, InvalidJson

T = TypeVar("T")
MOST_DEEP = 64
_STEPS = [{"[": 1, "{": 1}.get(chr(code), -1) for code in range(256)]
_NO_BRACKETS = bytes(code for code in range(256) if chr(code) not in "[]{}")
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def decode(body: bytes, kind: type[T]) -> T:
    """The body as `kind`.

    Raises:
        InvalidJson, InvalidField: in words the sender can act on.
    """
    check_depth(body)
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as e:
        raise wrong_field(e, "body") from e
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as e:
        raise InvalidJson(f"the body is not valid JSON: {e}") from e


def check_depth(body: bytes) -> None:
    """Raises InvalidJson for JSON that whoever works with it would be lost in."""
    if len(body) < 2 * MOST_DEEP:
        return
    brackets = body.translate(None, _NO_BRACKETS)
    if len(brackets) <= MOST_DEEP or _deepest(brackets) <= MOST_DEEP:
        return
    # Rare, and slower: some may stand in texts.
    brackets = _TEXT.sub(b"", body).translate(None, _NO_BRACKETS)
    if brackets and _deepest(brackets) > MOST_DEEP:
        raise InvalidJson(f"this JSON is nested deeper than {MOST_DEEP} levels")


def _deepest(brackets: bytes) -> int:
    return max(accumulate(map(_STEPS.__getitem__, brackets)))


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
