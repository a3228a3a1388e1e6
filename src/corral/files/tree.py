"""Folders read into trees, and trees written into folders. Sends nothing.

However large a file is, no more than a chunk of it is in memory.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from corral.core import tree as trees
from corral.core.tree import (
    CHUNK_BYTES,
    TREE_BYTES,
    TREE_FILES,
    Tree,
    TreeFile,
    TreeLink,
)
from corral.errors import BadRequest, CorralError, InvalidField, TooLarge
from corral.files.walk import is_within, link_target, open_inside, source_files

Get = Callable[[str], bytes]
"""Gives the bytes of an object by its digest, checked."""
Make = Callable[[TreeFile, Path], object]
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


def load_tree(digest: str, get: Get) -> Tree:
    """The tree that an object describes.

    Raises:
        BadRequest: the object is no tree.
    """
    return read_manifest(get(digest), get)


def read_manifest(data: bytes, get: Get) -> Tree:
    return trees.decode(data, (get(piece) for piece in trees.pieces_of(data)))


def write_tree(
    tree: Tree,
    folder: Path,
    make: Make,
    each: Callable[[Make, Iterable[TreeFile], Iterable[Path]], Iterable[object]] = map,
) -> None:
    """Write a tree into an empty folder of one's own.

    Args:
        tree: what to write.
        folder: is there, empty, and nobody else's.
        make: makes one file at a path.
        each: `map`, or one that makes several files at once.

    Raises:
        BadRequest: a link leads out, or this system cannot keep a name.
    """
    for name in (*(f.name for f in tree.files), *(x.name for x in tree.links)):
        if os.sep != "/" and any(c in name for c in "\\:"):
            raise BadRequest(f"{name!r} has a name this system cannot keep")
    places = [folder / file.name for file in tree.files]
    for parent in {p.parent for p in (*places, *(folder / x.name for x in tree.links))}:
        parent.mkdir(parents=True, exist_ok=True)
    for _ in each(make, tree.files, places):
        pass
    for link in tree.links:
        (folder / link.name).symlink_to(link.target)
    # Only now: a link may lead through one that came after it.
    for link in tree.links:
        if not is_within(folder / link.name, folder):
            raise BadRequest(f"{link.name!r} is a link that leads out of the folder")


def write_file(file: TreeFile, path: Path, get: Get) -> None:
    """Write one file of a tree, chunk by chunk; `path` must not be there.

    Raises:
        BadRequest: the chunks are not those of the file.
    """
    whole = hashlib.sha256()
    with path.open("xb") as stream:
        for index, digest in enumerate(file.chunks):
            data = get(digest)
            if len(data) != file.chunk_size(index):
                raise BadRequest(f"{file.name!r} is of another size than was said")
            whole.update(data)
            stream.write(data)
    if whole.hexdigest() != file.digest:
        raise BadRequest(f"{file.name!r} is not what its digest says")
    if file.is_executable:
        path.chmod(0o755)
