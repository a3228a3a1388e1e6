"""The calls about objects: send bytes once, fetch them checked.

An object is named by the SHA-256 of its bytes, so what is there already is not sent.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from corral.client.bar import Advance
from corral.client.exchange import Flow, Request, get, segment
from corral.errors import CorralError, InvalidField, TooLarge, Unavailable

# What a manager takes unless its `batch_body_limit` says otherwise.
LIMIT_BYTES = 16 << 20
_BINARY = {"Content-Type": "application/octet-stream"}


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
    digest = hashlib.sha256(blob).hexdigest()
    path = f"/objects/{digest}"
    if not (yield from _is_there(path, len(blob))):
        yield Request("PUT", path, body=blob, is_repeatable=True, headers=_BINARY)
    return digest


def _upload_folder(folder: Path, on_progress: Advance | None) -> Flow[str]:
    # Callers who send no folder need not pay for what reads one.
    from corral.client.transfer import send_tree
    from corral.client.tree import read_source

    tree, reader = read_source(folder)
    return (yield from send_tree(tree, reader, on_progress))


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
        response = yield Request("HEAD", path, is_repeatable=True)
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
