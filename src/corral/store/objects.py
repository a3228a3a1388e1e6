"""Content-addressed blobs: worker sources and artifacts, in a folder, S3 or memory.

The name of an object is the SHA-256 of its bytes, so it never changes, may be written
any number of times, and is checked on every read. Knows neither tasks nor users.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import LocalStore, MemoryStore, S3Store

from corral.errors import (
    CorruptObject,
    InvalidField,
    NotFound,
    SettingsError,
    StoreUnavailable,
    TooLarge,
)

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

log = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R")
LIMIT_BYTES = 16 << 20
# Hashing more than this would hold up the event loop for milliseconds.
_SMALL = 1 << 18
_AT_ONCE = 32
_LISTED = 1000
_DIGEST = re.compile(r"[0-9a-f]{64}")
# A caller waits for the answer: better a 503 in seconds than a success in minutes.
_RETRY: RetryConfig = {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}


@dataclass(frozen=True, slots=True)
class S3Access:
    """Where an S3 server is and who we are to it.

    Without an endpoint it is AWS; without keys the host's own role there, and nobody
    in particular at another server.
    """

    endpoint: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)


def digest_of(data: bytes) -> str:
    """The name of these bytes: SHA-256 in small hex digits."""
    return hashlib.sha256(data).hexdigest()


def check_digest(digest: str) -> str:
    """The digest itself.

    Raises:
        InvalidField: it is not one.
    """
    if not _DIGEST.fullmatch(digest):
        raise InvalidField(
            "a digest is 64 hex digits, in small letters", field="digest"
        )
    return digest


class ObjectStore:
    """Blobs by digest; every call may raise StoreUnavailable."""

    def __init__(
        self,
        backend: LocalStore | MemoryStore | S3Store,
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        self._backend = backend
        self.limit_bytes = limit_bytes

    @property
    def backend(self) -> LocalStore | MemoryStore | S3Store:
        """For what lies beside the objects, under names that are no digests."""
        return self._backend

    async def put(self, data: bytes, expected: str | None = None) -> str:
        """Store bytes; their digest.

        It writes even what is there already: that mends an object that went bad.

        Raises:
            TooLarge: more than `limit_bytes`.
            InvalidField: the sender expected another digest.
        """
        if len(data) > self.limit_bytes:
            raise TooLarge(
                f"an object has at most {self.limit_bytes} bytes; this one has "
                f"{len(data)}",
                limit_bytes=self.limit_bytes,
            )
        digest = await _digest(data)
        if expected is not None and check_digest(expected) != digest:
            raise InvalidField(
                f"the bytes that came have digest {digest}, not {expected}",
                field="digest",
            )
        with translated(digest):
            await self._backend.put_async(_key(digest), data, use_multipart=False)
        return digest

    async def get(self, digest: str) -> bytes:
        """The bytes, once they are found to be those of the digest.

        Raises:
            InvalidField: not a digest.
            NotFound: there is no such object.
            CorruptObject: there is one, and it is not what was put there.
        """
        with translated(check_digest(digest)):
            found = await self._backend.get_async(_key(digest))
            # A stranger's file in our place is not read into memory whole.
            is_sane = found.meta["size"] <= self.limit_bytes
            data = bytes(await found.bytes_async()) if is_sane else b""
        if not is_sane or await _digest(data) != digest:
            log.error("object %s is corrupt (%d bytes)", digest, found.meta["size"])
            raise CorruptObject(
                f"object {digest} is damaged where it is stored; send it again",
                digest=digest,
            )
        return data

    async def start(self, digest: str, length: int = 64) -> bytes:
        """Its first bytes, unchecked: only good for telling what it may be."""
        with translated(check_digest(digest)):
            found = await self._backend.get_async(_key(digest))
            # Not by a range, which not every server knows.
            async for part in found.stream(min_chunk_size=length):
                return bytes(part)[:length]
        return b""

    async def size(self, digest: str) -> int | None:
        """How many bytes are stored under a digest; None when there is nothing."""
        try:
            with translated(check_digest(digest)):
                meta = await self._backend.head_async(_key(digest))
        except NotFound:
            return None
        return meta["size"]

    async def missing(
        self, digests: Sequence[str], sizes: Sequence[int] = ()
    ) -> list[str]:
        """Those of which nothing is stored, or something of another size."""
        found = await _side_by_side(self.size, digests)
        wanted = sizes or found
        return [
            digest
            for digest, size, right in zip(digests, found, wanted, strict=True)
            if size is None or size != right
        ]

    async def put_all(self, blobs: Sequence[bytes]) -> list[str]:
        """Store several; their digests."""
        return await _side_by_side(self.put, blobs)

    async def listed(self) -> AsyncIterator[list[tuple[str, datetime]]]:
        """Everything stored, with the time it was written, in batches."""
        with translated("list"):
            async for batch in self._backend.list(chunk_size=_LISTED):
                rows = [(str(row["path"]), row["last_modified"]) for row in batch]
                found = [(path.rpartition("/")[2], path, at) for path, at in rows]
                # Others may keep things in the same place, under other names.
                yield [
                    (name, at)
                    for name, path, at in found
                    if _DIGEST.fullmatch(name) and path == _key(name)
                ]

    async def exists(self, digest: str) -> bool:
        return await self.size(digest) is not None

    async def delete(self, digest: str) -> None:
        """Forget an object; nothing happens when there is none."""
        try:
            with translated(check_digest(digest)):
                await self._backend.delete_async(_key(digest))
        except NotFound:
            return


def in_memory(limit_bytes: int = LIMIT_BYTES) -> ObjectStore:
    """For tests, and for a manager that was given no place to keep objects."""
    return ObjectStore(MemoryStore(), limit_bytes)


def open_objects(
    place: str, access: S3Access | None = None, limit_bytes: int = LIMIT_BYTES
) -> ObjectStore:
    """The store at `place`: a folder, made when missing, or `s3://bucket/prefix`.

    Nothing is asked of an S3 server yet. Its bucket must exist.

    Raises:
        SettingsError: the place cannot be used.
    """
    try:
        if "://" in place:
            return ObjectStore(_s3(place, access or S3Access()), limit_bytes)
        folder = Path(place).expanduser().absolute()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return ObjectStore(LocalStore(folder, automatic_cleanup=True), limit_bytes)
    except (OSError, ValueError, BaseError) as error:
        raise SettingsError(
            f"the object store {place!r} cannot be used: {_reason(error)}"
        ) from error


def _s3(place: str, access: S3Access) -> S3Store:
    parts = urlsplit(place)
    if parts.scheme != "s3" or not parts.netloc:
        raise ValueError("it must be a folder or like s3://bucket/prefix")
    options: dict[str, Any] = {}
    endpoint = access.endpoint
    if endpoint is not None:
        endpoint = endpoint.rstrip("/")
        # MinIO's own port speaks plain HTTP unless told otherwise.
        endpoint = endpoint if "://" in endpoint else f"http://{endpoint}"
        options = {
            "endpoint": endpoint,
            "region": "us-east-1",
            "virtual_hosted_style_request": False,
            "skip_signature": access.access_key is None,
        }
    if access.access_key is not None:
        options["access_key_id"] = access.access_key
        options["secret_access_key"] = access.secret_key or ""
    client: ClientConfig = {
        "allow_http": (endpoint or "").startswith("http://"),
        "connect_timeout": "3s",
        "timeout": "20s",
    }
    prefix = parts.path.strip("/") or None
    return S3Store(
        parts.netloc,
        prefix=prefix,
        client_options=client,
        retry_config=_RETRY,
        **options,
    )


def _key(digest: str) -> str:
    # Two digits of it as a folder: no file system likes a million files in one.
    return f"{digest[:2]}/{digest}"


async def _side_by_side(
    call: Callable[[T], Awaitable[R]], items: Sequence[T]
) -> list[R]:
    """All of it, but no more at once than a server or a disk likes."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def one(item: T) -> R:
        async with turn:
            return await call(item)

    return await asyncio.gather(*(one(item) for item in items))


async def _digest(data: bytes) -> str:
    if len(data) < _SMALL:
        return digest_of(data)
    return await asyncio.to_thread(digest_of, data)


@contextmanager
def translated(digest: str) -> Iterator[None]:
    """Raise our errors in place of the library's."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(f"no object {digest}", digest=digest) from error
    except (OSError, BaseError) as error:
        raise StoreUnavailable(
            f"the object store does not answer: {_reason(error)}"
        ) from error


def _reason(error: Exception) -> str:
    # The library adds its inner state on further lines, which helps no caller.
    return str(error).partition("\n")[0] or type(error).__name__
