"""Folders as archives: the same files always make the same bytes, and no archive
writes outside the folder it is unpacked to. Sends nothing.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import stat
import tarfile
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from corral.core.tree import stays
from corral.errors import BadRequest, Conflict, InvalidField, TooLarge
from corral.files.walk import is_within, link_target, source_files

PACKED_LIMIT = 16 << 20


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """How much an archive may hold, unpacked: more would fill somebody's disk."""

    size_bytes: int = 512 << 20
    members: int = 50_000

    def check(self, size_bytes: int, members: int) -> None:
        """Raise TooLarge for more."""
        if size_bytes > self.size_bytes or members > self.members:
            raise TooLarge(
                f"an archive holds at most {self.size_bytes} bytes in "
                f"{self.members} files",
                limit_bytes=self.size_bytes,
            )


LIMITS = ArchiveLimits()
_FORMAT: Any = {
    "format": tarfile.PAX_FORMAT,
    "encoding": "utf-8",
    "errors": "surrogateescape",
}
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE)
_BROKEN = (tarfile.TarError, zlib.error, EOFError, OSError, ValueError)


def pack(folder: str | os.PathLike[str], *, limit_bytes: int = PACKED_LIMIT) -> bytes:
    """The files of a folder as a tar.gz, without what its .gitignore files exclude.

    Names, contents, who may execute, and links count; times, owners and empty folders
    do not. `.git` and `__pycache__` are left out, and so is what is neither file nor
    link. Links stay links.

    Raises:
        InvalidField: It is no folder, a file cannot be read, or a link leads out.
        TooLarge: More than `limit_bytes` packed, or more than could be unpacked.
    """
    root = Path(folder)
    if not root.is_dir():
        raise InvalidField(f"{root} is not a folder", field="folder")
    packed = _BoundedBuffer(limit_bytes)
    try:
        with (
            gzip.GzipFile("", "wb", 6, packed, mtime=0) as stream,
            tarfile.open(fileobj=stream, mode="w", **_FORMAT) as tar,
        ):
            _fill(tar, root)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.strerror else str(error)
        raise InvalidField(f"cannot pack {root}: {what}", field="folder") from error
    return packed.getvalue()


class _BoundedBuffer(io.BytesIO):
    """Stops a large folder before it is in memory whole."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__()
        self._limit = limit_bytes

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if self.tell() + len(data) > self._limit:
            raise TooLarge(
                f"the folder is larger than {self._limit} bytes packed: name what is "
                "not needed in .gitignore",
                limit_bytes=self._limit,
            )
        return super().write(data)


def _fill(tar: tarfile.TarFile, root: Path) -> None:
    total = 0
    for count, (name, path) in enumerate(source_files(root), 1):
        member = _member(root, name, path)
        total += member.size
        LIMITS.check(total, count)
        if member.issym():
            tar.addfile(member)
        else:
            with path.open("rb") as file:
                tar.addfile(member, file)


def _member(root: Path, name: str, path: Path) -> tarfile.TarInfo:
    """A header with nothing in it but what counts."""
    facts = path.lstat()
    member = tarfile.TarInfo(name)
    if stat.S_ISLNK(facts.st_mode):
        member.type = tarfile.SYMTYPE
        member.linkname = link_target(root, name)
        return member
    member.mode = 0o755 if facts.st_mode & stat.S_IXUSR else 0o644
    member.size = facts.st_size
    return member


def unpack(
    data: bytes, folder: str | os.PathLike[str], *, limits: ArchiveLimits = LIMITS
) -> None:
    """Unpack what `pack` made; `folder` appears whole or not at all.

    Raises:
        Conflict: The folder is there already, and not empty.
        BadRequest: It is no such archive, or holds what does not belong into one: a
            name or link that leads out, a device, one name twice.
        TooLarge: It would fill the disk.
    """
    place = Path(folder).absolute()
    if place.is_symlink() or (place.exists() and not _is_empty(place)):
        raise Conflict(f"{place} is there already", path=str(place))
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        _extract(data, draft / "all", limits)
        if place.exists():
            place.rmdir()
        (draft / "all").rename(place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _is_empty(place: Path) -> bool:
    return place.is_dir() and not any(place.iterdir())


def _extract(data: bytes, place: Path, limits: ArchiveLimits) -> None:
    place.mkdir()
    stream: Any = _Metered(gzip.GzipFile(fileobj=io.BytesIO(data)), limits)
    guard = _Guard(limits)
    try:
        with tarfile.open(fileobj=stream, mode="r|", **_FORMAT) as tar:
            for member in tar:
                guard.check(member)
                if member.issym():
                    _make_link(place, member)
                else:
                    tar.extract(member, place, filter="data")
        # Only now: a link may lead through one that came after it.
        for name in guard.links:
            if not is_within(place / name, place):
                raise _refusal(name, "is a link that leads out of the folder")
        # To the end, where the checksum is.
        while stream.read(1 << 16):
            pass
    except _BROKEN as error:
        raise BadRequest(f"the archive cannot be unpacked: {error}") from error


def _make_link(place: Path, member: tarfile.TarInfo) -> None:
    # Where the library cannot make a link it unpacks the target again in its place,
    # and goes in circles when that is the link itself.
    tarfile.data_filter(member, str(place))
    path = place / member.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(member.linkname)


class _Metered:
    """Reads no more than an archive may hold, whatever its headers promise."""

    def __init__(self, stream: gzip.GzipFile, limits: ArchiveLimits) -> None:
        self._stream = stream
        self._limits = limits
        # Beside the contents: a header and padding for each, and room for long names.
        self._left = limits.size_bytes + 4096 * limits.members

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            self._limits.check(self._limits.size_bytes + 1, 0)
        return data


class _Guard:
    """Refuses what the library's own filter lets pass and our archives never have."""

    def __init__(self, limits: ArchiveLimits) -> None:
        self._limits = limits
        self.links: set[str] = set()
        self._seen: set[str] = set()
        self._size = 0

    def check(self, member: tarfile.TarInfo) -> None:
        # Some numbers in it no clock can show.
        member.mtime = 0
        self._size += member.size
        self._limits.check(self._size, len(self._seen) + 1)
        if member.type not in _PLAIN or member.issparse() or member.size < 0:
            raise _refusal(member.name, "is neither file, folder nor link")
        path = PurePosixPath(member.name)
        if not path.parts and member.isdir():
            return
        if not path.parts or path.is_absolute() or ".." in path.parts:
            raise _refusal(member.name, "has a name that leads out of the folder")
        if _is_foreign(path):
            raise _refusal(member.name, "has a name this system cannot keep")
        name = str(path)
        if name in self._seen:
            raise _refusal(name, "comes twice")
        if any(str(parent) in self.links for parent in path.parents):
            raise _refusal(name, "lies behind a link")
        if member.issym():
            if not stays(name, member.linkname):
                raise _refusal(name, "is a link that leads out of the folder")
            self.links.add(name)
        self._seen.add(name)


def _is_foreign(path: PurePosixPath) -> bool:
    """Would this system read more into the name than a path of plain parts?"""
    return os.sep != "/" and any(c in str(path) for c in "\\:")


def _refusal(name: str, why: str) -> BadRequest:
    return BadRequest(f"the archive cannot be unpacked: {name!r} {why}", name=name)
