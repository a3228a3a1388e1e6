"""Secrets of one attempt: fetched when it starts, and masked in all it says.

Values are kept in memory for as long as the attempt runs, and nowhere else.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import quote, quote_plus

import msgspec

from corral.errors import CorralError, WorkerError
from corral.worker.base import Context
from corral.worker.manager_link import Away, Fenced, ReportRefused
from corral.worker.script.access import ScriptAccess

SHORTEST = 4
"""A shorter text would mask half of anything."""
_SHORTEST_FORM = 8
# A long one is a file: it is known by its lines.
_LONGEST = 4096
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_WRAPPED = (76, 64)
MASK = b"***"
_AWAY_S = 60.0
_HEAD = 4
PassOn = Callable[[str, bytes], None]


class _Values(msgspec.Struct):
    values: dict[str, str]


_decode = msgspec.json.Decoder(_Values).decode


def fetch_secrets(access: ScriptAccess, task: Context) -> Mapping[str, str]:
    """What this attempt's secrets are now, by variable.

    Raises:
        WorkerError: the manager does not give them, or stays away.
    """
    link = access.link()
    path = f"/workers/{access.worker_id}/secrets"
    body = msgspec.json.encode({"task_id": task.task_id, "attempt": task.attempt})
    try:
        told = link.insist(path, body, _AWAY_S, lambda: task.cancelled)
        return _decode(told).values
    except Away:
        raise WorkerError("the manager is away: no secrets can be had") from None
    except (Fenced, ReportRefused) as error:
        raise WorkerError(error.message.partition(": ")[2]) from None
    finally:
        link.close()


class Mask:
    """Puts *** in the place of every secret, also of one written in another way."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        found = {form for value in values for form in forms(value)}
        # The longest first: one secret may begin with another.
        self._words = sorted(found, key=len, reverse=True)

    def __bool__(self) -> bool:
        return bool(self._words)

    def cover(self, data: bytes) -> bytes:
        for word in self._words:
            data = data.replace(word, MASK)
        return data

    def text(self, text: str) -> str:
        raw = text.encode("utf-8", "surrogatepass")
        return self.cover(raw).decode("utf-8", "surrogatepass")

    def safe_end(self, data: bytes) -> int:
        """How much of `data` can be covered now, whatever comes after it."""
        end = len(data)
        for word in self._words:
            end = min(end, _begins_at(word, data))
        while (before := self._split_at(data, end)) < end:
            end = before
        return end

    def _split_at(self, data: bytes, end: int) -> int:
        """Where a word begins that lies on both sides of `end`; else `end`."""
        for word in self._words:
            at = data.find(word, max(0, end - len(word) + 1), end + len(word) - 1)
            if 0 <= at < end:
                return at
        return end

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Whatever is raised inside leaves without a secret in its words."""
        try:
            yield
        except CorralError as error:
            if self._words:
                error.message = self.text(error.message)
                error.args = (error.message,)
                if isinstance(said := error.details.get("output"), str):
                    error.details["output"] = self.text(said)
                # What caused it is shown with it, and may say the same.
                error.__cause__ = None
                error.__suppress_context__ = True
            raise


class Masked:
    """Covers streams that come in pieces; holds back what may become a secret."""

    def __init__(self, mask: Mask, pass_on: PassOn) -> None:
        self._mask = mask
        self._pass_on = pass_on
        self._rest: dict[str, bytes] = {}

    def feed(self, stream: str, data: bytes) -> None:
        """Called from one thread for each stream."""
        if not self._mask:
            self._pass_on(stream, data)
            return
        data = self._rest.pop(stream, b"") + data
        end = self._mask.safe_end(data)
        if end < len(data):
            self._rest[stream] = data[end:]
        if end:
            self._pass_on(stream, self._mask.cover(data[:end]))

    def close(self) -> None:
        """Nothing more comes: what was held back is no secret, or a whole one."""
        for stream, rest in self._rest.items():
            self._pass_on(stream, self._mask.cover(rest))
        self._rest.clear()


def _begins_at(word: bytes, data: bytes) -> int:
    """Where the end of `data` may be the beginning of `word`; else its length."""
    size = len(data)
    at = max(0, size - len(word) + 1)
    while (at := data.find(word[:_HEAD], at)) >= 0:
        if word.startswith(data[at:]):
            return at
        at += 1
    for count in range(min(_HEAD - 1, len(word) - 1, size), 0, -1):
        if data.endswith(word[:count]):
            return size - count
    return size


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
