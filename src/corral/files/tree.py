"""Trees written into folders. Sends nothing.

However large a file is, no more than a chunk of it is in memory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from corral.core import tree as trees
from corral.core.tree import TREE_BYTES, Tree, TreeFile
from corral.errors import BadRequest
from corral.files.walk import is_within

Get = Callable[[str], bytes]
"""Gives the bytes of an object by its digest, checked."""
Make = Callable[[TreeFile, Path], object]


def load_tree(digest: str, get: Get, limit_bytes: int = TREE_BYTES) -> Tree:
    """The tree that an object describes.

    Raises:
        BadRequest: the object is no tree.
        TooLarge: its files have more bytes than `limit_bytes`.
    """
    return read_manifest(get(digest), get, limit_bytes)


def read_manifest(data: bytes, get: Get, limit_bytes: int = TREE_BYTES) -> Tree:
    pieces = (get(piece) for piece in trees.pieces_of(data))
    return trees.decode(data, pieces, limit_bytes)


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
