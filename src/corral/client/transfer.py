"""Sends what the manager has not: chunks of files by content, many small ones at once.

A broken upload needs no memory of how far it was: it asks again what is missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import msgspec

from corral.client.bar import Advance
from corral.client.exchange import Flow, Request
from corral.client.fault import decode
from corral.client.payload import encode
from corral.core import tree as trees
from corral.core.tree import CHUNK_BYTES, File, Tree
from corral.errors import Unavailable


class Chunks(Protocol):
    """Where the bytes of files come from; see `Reader`."""

    def chunk(self, file: File, index: int) -> bytes: ...


ASK = 1000
"""Digests in one question."""
PARCEL_BYTES = CHUNK_BYTES
PARCEL_OBJECTS = 500
_BINARY = {"Content-Type": "application/octet-stream"}


class _Missing(msgspec.Struct):
    missing: list[str]


class _Stored(msgspec.Struct):
    digests: list[str]


@dataclass(slots=True)
class _Parcel:
    """Objects for one request: before each, its length in four bytes."""

    digests: list[str] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)
    size: int = 0

    def add(self, digest: str, data: bytes) -> None:
        self.digests.append(digest)
        self.parts += (len(data).to_bytes(4, "big"), data)
        self.size += len(data)

    def has_room(self, size: int) -> bool:
        return not self.digests or (
            self.size + size <= PARCEL_BYTES and len(self.digests) < PARCEL_OBJECTS
        )

    def send(self) -> Flow[None]:
        if not self.digests:
            return
        body = b"".join(self.parts)
        response = yield Request(
            "POST", "/objects", body=body, is_repeatable=True, headers=_BINARY
        )
        if decode(response, _Stored).digests != self.digests:
            raise Unavailable("what was sent was changed on its way")


def send_tree(
    tree: Tree,
    reader: Chunks,
    on_progress: Advance | None = None,
    check: Callable[[], object] = lambda: None,
) -> Flow[str]:
    """Store a folder's tree; the digest to get it by.

    Args:
        tree: what `reader` has read.
        reader: where chunks come from.
        on_progress: called with bytes done, of how many.
        check: called between requests; what it raises ends the upload.

    Raises:
        Changed: a file was written to meanwhile.
    """
    done, total = 0, tree.size
    parcel = _Parcel()
    for some in _batched(_unique(tree.files), ASK):
        check()
        missing = yield from missing_of({d: f.chunk_size(i) for d, f, i in some})
        for digest, file, index in some:
            size = file.chunk_size(index)
            if digest in missing:
                if not parcel.has_room(size):
                    yield from parcel.send()
                    check()
                    parcel = _Parcel()
                parcel.add(digest, reader.chunk(file, index))
            done += size
            if on_progress is not None:
                on_progress(done, total)
    yield from parcel.send()
    return (yield from _send_manifest(tree))


def _unique(files: Iterable[File]) -> Iterator[tuple[str, File, int]]:
    seen: set[str] = set()
    for file in files:
        for index, digest in enumerate(file.chunks):
            if digest not in seen:
                seen.add(digest)
                yield digest, file, index


def _batched(
    items: Iterator[tuple[str, File, int]], size: int
) -> Iterator[list[tuple[str, File, int]]]:
    while some := list(islice(items, size)):
        yield some


def _send_manifest(tree: Tree) -> Flow[str]:
    objects = trees.encode(tree)
    if not trees.is_tree(objects[0]):
        pieces = []
        for piece in objects:
            pieces.append((yield from send_objects([piece]))[0])
        objects = [trees.manifest(pieces)]
    return (yield from send_objects(objects))[0]


def send_objects(objects: list[bytes]) -> Flow[list[str]]:
    """Store these bytes where they are missing; their digests."""
    named = {hashlib.sha256(data).hexdigest(): data for data in objects}
    missing = yield from missing_of({d: len(data) for d, data in named.items()})
    parcel = _Parcel()
    for digest in missing:
        parcel.add(digest, named[digest])
    yield from parcel.send()
    return list(named)


def missing_of(sizes: dict[str, int]) -> Flow[set[str]]:
    """Which of these objects the manager has not, or has of another size."""
    if not sizes:
        return set()
    body = encode({"digests": list(sizes), "sizes": list(sizes.values())})
    response = yield Request("POST", "/objects/missing", body=body, is_repeatable=True)
    return set(decode(response, _Missing).missing)
