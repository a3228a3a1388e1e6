"""The ways a secret is commonly written by programs that print it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

SHORTEST = 4
"""A shorter text would mask half of anything."""
_SHORTEST_FORM = 8
# A long one is a file: it is known by its lines.
_LONGEST = 4096
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_WRAPPED = (76, 64)


def forms(value: str) -> set[bytes]:
    """Each line of a value; and all of it in base64, hex, URLs and JSON."""
    lines = (line.strip().encode() for line in value.splitlines())
    found = {line for line in lines if len(line) >= SHORTEST}
    whole = value.strip().encode()
    if SHORTEST <= len(whole) <= _LONGEST:
        found |= {form for form in _written(whole) if len(form) >= _SHORTEST_FORM}
    return found


def _written(whole: bytes) -> Iterator[bytes]:
    text = whole.decode()
    yield quote(text, safe="").encode()
    yield quote_plus(text).encode()
    yield json.dumps(text)[1:-1].encode()
    yield json.dumps(text, ensure_ascii=False)[1:-1].encode()
    yield whole.hex().encode()
    yield whole.hex().upper().encode()
    for offset in range(3):
        inside = _inside(whole, offset)
        yield inside
        yield inside.translate(_URL_SAFE)
    encoded = base64.b64encode(whole)
    for width in _WRAPPED:
        yield from (encoded[i : i + width] for i in range(0, len(encoded), width))


def _inside(whole: bytes, offset: int) -> bytes:
    """The part of its base64 that is the same whatever stands before and after it."""
    encoded = base64.b64encode(bytes(offset) + whole)
    first = (offset * 8 + 5) // 6
    last = (offset + len(whole)) * 8 // 6
    return encoded[first:last]
