"""Reads a folder into a tree: which files it has, and what their bytes are."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from corral.core.tree import (
    CHUNK_BYTES,
    TREE_BYTES,
    TREE_FILES,
    Tree,
    TreeFile,
    TreeLink,
)
from corral.errors import CorralError, InvalidField, TooLarge
from corral.files.walk import link_target, open_inside, source_files

_PIECE = 1 << 20


class Changed(CorralError):
    """A file was written to while it was read."""

    code = "changed"


@dataclass(slots=True)
class TreeReader:
    """Reads one folder, any number of times; what has not changed is hashed once."""

    root: Path
    _known: dict[str, tuple[tuple[int, ...], TreeFile]] = field(default_factory=dict)

    def file(self, name: str) -> TreeFile:
        """A file by its content.

        Raises:
            OSError: it cannot be read, or is no plain file.
        """
        with open_inside(self.root, name) as stream:
            facts = os.fstat(stream.fileno())
            mark = (
                facts.st_ino,
                facts.st_size,
                facts.st_mtime_ns,
                facts.st_ctime_ns,
            )
            known = self._known.get(name)
            if known is None or known[0] != mark:
                is_executable = bool(facts.st_mode & stat.S_IXUSR)
                made = _hash(name, stream, facts.st_size, is_executable)
                known = self._known[name] = (mark, made)
            return known[1]

    def chunk(self, file: TreeFile, index: int) -> bytes:
        """The bytes of one chunk.

        Raises:
            Changed: they are not those any more.
        """
        with open_inside(self.root, file.name) as stream:
            stream.seek(index * CHUNK_BYTES)
            data = stream.read(file.chunk_size(index))
        if hashlib.sha256(data).hexdigest() != file.chunks[index]:
            self._known.pop(file.name, None)
            raise Changed(f"{file.name} was written to while it was sent")
        return data


def _hash(name: str, stream: BinaryIO, size: int, is_executable: bool) -> TreeFile:
    whole = hashlib.sha256()
    parts: list[str] = []
    left = size
    while left:
        # Of one chunk the whole is the chunk.
        part = hashlib.sha256() if size > CHUNK_BYTES else None
        end = left - min(left, CHUNK_BYTES)
        while left > end:
            piece = stream.read(min(_PIECE, left - end))
            if not piece:
                raise Changed(f"{name} became shorter while it was read")
            left -= len(piece)
            whole.update(piece)
            if part is not None:
                part.update(piece)
        if part is not None:
            parts.append(part.hexdigest())
    return TreeFile(name, size, whole.hexdigest(), is_executable, tuple(parts))


def read_source(root: Path) -> tuple[Tree, TreeReader]:
    """The tree of a folder without what its .gitignore files exclude.

    Raises:
        InvalidField: it is no folder, a file cannot be read, or a link leads out.
        TooLarge: more than a tree may hold.
    """
    if not root.is_dir():
        raise InvalidField(f"{root} is not a folder", field="folder")
    reader = TreeReader(root)
    files: list[TreeFile] = []
    links: list[TreeLink] = []
    size = 0
    try:
        for name, path in source_files(root):
            facts = path.lstat()
            size += facts.st_size
            _check_total(size, len(files) + len(links) + 1)
            if stat.S_ISLNK(facts.st_mode):
                links.append(TreeLink(name, link_target(root, name)))
            else:
                files.append(reader.file(name))
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.strerror else str(error)
        raise InvalidField(f"cannot read {root}: {what}", field="folder") from error
    return Tree(tuple(files), tuple(links)), reader


def _check_total(size: int, count: int) -> None:
    if size > TREE_BYTES or count > TREE_FILES:
        raise TooLarge(
            f"a folder may have {TREE_BYTES >> 30} GiB in {TREE_FILES} files: name "
            "what is not needed in .gitignore",
            limit_bytes=TREE_BYTES,
        )
