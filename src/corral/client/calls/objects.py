"""The calls about objects: send bytes once, fetch them checked.

An object is named by the SHA-256 of its bytes, so what is there already is not sent:
chunks of files go by content, many small ones at once.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Protocol

import msgspec

from corral.client.http.endpoint import Flow, Request, get, segment
from corral.client.http.errors import decode
from corral.client.http.payload import encode
from corral.client.progress import Advance
from corral.core import tree as trees
from corral.core.tree import CHUNK_BYTES, Tree, TreeFile
from corral.errors import CorralError, InvalidField, TooLarge, Unavailable

ASK = 1000
"""Digests in one question."""
PARCEL_BYTES = CHUNK_BYTES
PARCEL_OBJECTS = 500
# What a manager takes unless its `batch_body_limit` says otherwise.
LIMIT_BYTES = 16 << 20
_BINARY = {"Content-Type": "application/octet-stream"}


class ChunkSource(Protocol):
    """Where the bytes of files come from; see `files/tree.py`."""

    def chunk(self, file: TreeFile, index: int) -> bytes: ...


class _Missing(msgspec.Struct):
    missing: list[str]


class _Stored(msgspec.Struct):
    digests: list[str]


@dataclass(slots=True)
class _ObjectParcel:
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
    reader: ChunkSource,
    on_progress: Advance | None = None,
    check: Callable[[], object] = lambda: None,
    *,
    is_code: bool = False,
) -> Flow[str]:
    """Store a folder's tree; the digest to get it by.

    Args:
        tree: what `reader` has read.
        reader: where chunks come from.
        on_progress: called with bytes done, of how many.
        check: called between requests; what it raises ends the upload.
        is_code: it is to be run, and not only kept.

    Raises:
        Changed: a file was written to meanwhile.
    """
    done, total = 0, tree.size
    parcel = _ObjectParcel()
    for some in _batched(_unique(tree.files), ASK):
        check()
        missing = yield from missing_of({d: f.chunk_size(i) for d, f, i in some})
        for digest, file, index in some:
            size = file.chunk_size(index)
            if digest in missing:
                if not parcel.has_room(size):
                    yield from parcel.send()
                    check()
                    parcel = _ObjectParcel()
                parcel.add(digest, reader.chunk(file, index))
            done += size
            if on_progress is not None:
                on_progress(done, total)
    yield from parcel.send()
    return (yield from _send_manifest(tree, is_code))


def _unique(files: Iterable[TreeFile]) -> Iterator[tuple[str, TreeFile, int]]:
    seen: set[str] = set()
    for file in files:
        for index, digest in enumerate(file.chunks):
            if digest not in seen:
                seen.add(digest)
                yield digest, file, index


def _batched(
    items: Iterator[tuple[str, TreeFile, int]], size: int
) -> Iterator[list[tuple[str, TreeFile, int]]]:
    while some := list(islice(items, size)):
        yield some


def _send_manifest(tree: Tree, is_code: bool) -> Flow[str]:
    objects = trees.encode(tree)
    if not trees.is_tree(objects[0]):
        pieces = []
        for piece in objects:
            pieces.append((yield from send_objects([piece]))[0])
        objects = [trees.manifest(pieces)]
    if is_code:
        return (yield from _send_code(objects[0]))
    return (yield from send_objects(objects))[0]


def _send_code(blob: bytes) -> Flow[str]:
    digest = hashlib.sha256(blob).hexdigest()
    path = f"/objects/{digest}"
    if not (yield from _is_there(path, len(blob))):
        yield Request("PUT", path, body=blob, is_repeatable=True, headers=_BINARY)
    return digest


def send_objects(objects: list[bytes]) -> Flow[list[str]]:
    """Store these bytes where they are missing; their digests."""
    named = {hashlib.sha256(data).hexdigest(): data for data in objects}
    missing = yield from missing_of({d: len(data) for d, data in named.items()})
    parcel = _ObjectParcel()
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


def upload(
    data: bytes | str | os.PathLike[str],
    *,
    limit_bytes: int = LIMIT_BYTES,
    on_progress: Advance | None = None,
) -> Flow[str]:
    """Store bytes, a file, or a folder by content; the digest to get it by.

    What the manager has already is not sent again; of a folder that changed, only the
    files that did.

    Args:
        data: The bytes themselves, or the path of a file or folder. Of a folder goes
            what its .gitignore files leave: at most 4 GiB in 200,000 files.
        limit_bytes: The manager's limit of one object, where it is not the usual one.
        on_progress: For a folder: called with bytes done, of how many.

    Raises:
        TooLarge: Nothing was sent.
        InvalidField: The path cannot be read.
    """
    if isinstance(data, str | os.PathLike) and Path(data).is_dir():
        return (yield from _upload_folder(Path(data), on_progress))
    blob = _read(data, limit_bytes)
    if len(blob) > limit_bytes:
        raise TooLarge(
            f"an object has at most {limit_bytes} bytes; this one has {len(blob)}",
            limit_bytes=limit_bytes,
        )
    return (yield from _send_code(blob))


def _upload_folder(folder: Path, on_progress: Advance | None) -> Flow[str]:
    # Callers who send no folder need not pay for what reads one.
    from corral.files.read_folder import read_source

    tree, reader = read_source(folder)
    return (yield from send_tree(tree, reader, on_progress, is_code=True))


def download(digest: str) -> Flow[bytes]:
    """The bytes of an object, once they are found to be those of its digest."""
    response = yield get(f"/objects/{segment(digest)}")
    if hashlib.sha256(response.body).hexdigest() != digest:
        raise Unavailable(
            f"the bytes that came are not those of object {digest}: they were "
            "changed on their way",
            digest=digest,
        )
    return response.body


def _is_there(path: str, size: int) -> Flow[bool]:
    try:
        # Bytes that a task left behind are sent again: only then are they code.
        query = {"as": "code"}
        response = yield Request("HEAD", path, query, is_repeatable=True)
    except CorralError as error:
        # An answer to HEAD has no body that could say more; the PUT's answer will.
        if error.status is None or error.status >= 500:
            raise
        return False
    # Of another size it is damaged, and is mended by sending it again.
    return response.headers.get("content-length") == str(size)


def _read(data: bytes | str | os.PathLike[str], limit_bytes: int) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    path = Path(data)
    try:
        with path.open("rb") as file:
            # One byte more tells that it is too large, however large it is.
            return file.read(limit_bytes + 1)
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise InvalidField(f"cannot read {path}: {reason}", field="data") from error
