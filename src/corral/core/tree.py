"""A folder by content: which files it has, and the objects their bytes lie in.

A tree is stored as an object itself (its manifest), so one digest names a whole folder.
Names in it are data: what is read here leads nowhere but below its folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from corral.errors import BadRequest, TooLarge

CHUNK_BYTES = 8 << 20
"""A file is cut at every multiple of this."""
TREE_BYTES = 4 << 30
TREE_FILES = 200_000
NAME_BYTES = 4096
LIST_PIECES = 64
LIST_BYTES = 64 << 20
"""What the list of a tree is at most, in so many pieces."""
# JSON has a comma between any two values: so many of them fit into memory, and more
# belong to no tree.
_LIST_COMMAS = 8 * TREE_FILES
_KIND = "tree"
_HEAD = b'{"corral":"tree"'
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class TreeFile:
    """`digest` is the SHA-256 of all of it; a small file is its own one chunk."""

    name: str
    size: int
    digest: str
    is_executable: bool = False
    parts: tuple[str, ...] = ()

    @property
    def chunks(self) -> tuple[str, ...]:
        """The objects it is made of, in order."""
        return self.parts or ((self.digest,) if self.size else ())

    def chunk_size(self, index: int) -> int:
        return min(CHUNK_BYTES, self.size - index * CHUNK_BYTES)


@dataclass(frozen=True, slots=True)
class TreeLink:
    name: str
    target: str


@dataclass(frozen=True, slots=True)
class Tree:
    files: tuple[TreeFile, ...] = ()
    links: tuple[TreeLink, ...] = ()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def chunks(self) -> dict[str, int]:
        """Each object once, with its size."""
        return {
            digest: file.chunk_size(index)
            for file in self.files
            for index, digest in enumerate(file.chunks)
        }


def encode(tree: Tree) -> list[bytes]:
    """Objects to store, the manifest last; the same for the same content.

    A long list is cut, too, and the manifest then names its pieces: `pieces_of`.

    Raises:
        TooLarge: the list would be longer than is read.
    """
    rows: list[list[Any]] = [
        ["f", f.name, f.size, f.digest, int(f.is_executable), *f.parts]
        for f in sorted(tree.files, key=lambda f: f.name)
    ]
    rows += [["l", x.name, x.target] for x in sorted(tree.links, key=lambda x: x.name)]
    body = _dump(rows)
    if len(body) > LIST_BYTES:
        raise TooLarge(
            f"the names of a folder's files have {len(body)} bytes as a list, and may "
            f"have {LIST_BYTES}",
            limit_bytes=LIST_BYTES,
        )
    if len(body) <= CHUNK_BYTES // 2:
        return [_HEAD + b',"rows":' + body + b"}"]
    return [body[at : at + CHUNK_BYTES] for at in range(0, len(body), CHUNK_BYTES)]


def manifest(pieces: Iterable[str]) -> bytes:
    """The manifest of a list that was cut, by the digests of its pieces."""
    return _HEAD + b',"pieces":' + _dump(list(pieces)) + b"}"


def is_tree(data: bytes) -> bool:
    """Is it a manifest? No archive begins like one."""
    return data.startswith(_HEAD)


def pieces_of(data: bytes) -> tuple[str, ...]:
    """The objects a manifest's list lies in; none when it has the list itself."""
    told = _load(data).get("pieces", [])
    if not isinstance(told, list) or not all(map(_is_digest, told)):
        raise _refusal("its pieces are no digests")
    if len(told) > LIST_PIECES or len(set(told)) < len(told):
        raise _refusal(f"it has more than {LIST_PIECES} pieces, or one of them twice")
    return tuple(told)


def check_list_size(size: int) -> None:
    """Raises BadRequest when the pieces of a list have more bytes than are read."""
    if size > LIST_BYTES:
        raise _refusal(f"its list has more than {LIST_BYTES} bytes")


def decode(
    data: bytes, pieces: Iterable[bytes] = (), limit_bytes: int | None = TREE_BYTES
) -> Tree:
    """The tree of a manifest, with the bytes of its pieces where it has some.

    Pieces are taken one by one, and no more of them than a list may have. Whoever
    writes files of others' trees says how large those are together at most.

    Raises:
        BadRequest: it is none, or holds what does not belong into one: a name or
            link that leads out, one name twice, a file where a folder must be.
        TooLarge: its files have more bytes than `limit_bytes`.
    """
    body = _join(pieces)
    rows = _parse(body) if body else _load(data).get("rows")
    if not isinstance(rows, list) or len(rows) > TREE_FILES:
        raise _refusal(f"it lists no files, or more than {TREE_FILES}")
    files: list[TreeFile] = []
    links: list[TreeLink] = []
    for row in rows:
        made = _read_row(row)
        if isinstance(made, TreeFile):
            files.append(made)
        else:
            links.append(made)
    _check_places([*(f.name for f in files), *(x.name for x in links)])
    tree = Tree(tuple(files), tuple(links))
    if limit_bytes is not None and tree.size > limit_bytes:
        raise TooLarge(
            f"the files of this tree have {tree.size} bytes: {limit_bytes} are allowed",
            limit_bytes=limit_bytes,
        )
    return tree


def _join(pieces: Iterable[bytes]) -> bytes:
    taken: list[bytes] = []
    size = 0
    for piece in pieces:
        size += len(piece)
        check_list_size(size)
        taken.append(piece)
    return b"".join(taken)


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _parse(data: bytes) -> Any:
    # What we write is ASCII; one other letter would make all of it four times as large.
    if not data.isascii() or data.count(b",") > _LIST_COMMAS:
        raise _refusal("it is not written as one, or far too long")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _refusal(str(error)) from error


def _load(data: bytes) -> dict[str, Any]:
    told = _parse(data)
    if not isinstance(told, dict) or told.get("corral") != _KIND:
        raise _refusal("it does not say that it is one")
    return told


def _read_row(row: Any) -> TreeFile | TreeLink:
    match row:
        case ["l", str(name), str(target)]:
            if why := fault_of(name):
                raise _refusal(f"{name!r} {why}")
            if not stays(name, target) or "\0" in target:
                raise _refusal(f"{name!r} is a link that leads out of the folder")
            return TreeLink(name, target)
        case ["f", str(name), int(size), str(digest), int(x), *parts] if size >= 0:
            if why := fault_of(name):
                raise _refusal(f"{name!r} {why}")
            wanted = -(-size // CHUNK_BYTES) if size > CHUNK_BYTES else 0
            if len(parts) != wanted or not all(map(_is_digest, (digest, *parts))):
                raise _refusal(f"the parts of {name!r} are not those of its size")
            return TreeFile(name, size, digest, bool(x), tuple(parts))
    raise _refusal("a row of it is neither file nor link")


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def fault_of(name: str) -> str | None:
    """What is wrong with a name below a folder; None when nothing is."""
    if not name or "\0" in name or len(name.encode("utf-8", "replace")) > NAME_BYTES:
        return "is no name"
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "has a name that leads out of the folder"
    return None


def stays(name: str, target: str) -> bool:
    """Read as a text alone, does a link at `name` stay inside?"""
    if not target or target.startswith("/") or "\\" in target or ":" in target[:2]:
        return False
    depth = name.count("/")
    for part in target.split("/"):
        if part in ("", "."):
            continue
        depth += -1 if part == ".." else 1
        if depth < 0:
            return False
    return True


def _check_places(names: list[str]) -> None:
    taken = set(names)
    if len(taken) != len(names):
        raise _refusal("a name comes twice")
    for name in names:
        parts = name.split("/")[:-1]
        for end in range(len(parts), 0, -1):
            if "/".join(parts[:end]) in taken:
                raise _refusal(f"{name!r} lies behind a file or link")


def _refusal(why: str) -> BadRequest:
    return BadRequest(f"this is no tree of files: {why}")
