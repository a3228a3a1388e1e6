"""Where files of cached trees lie, by content: what one has, another need not fetch.

Trees share such files as hard links. Nothing is kept here but the way to them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from corral.client.tree import Get, write_file, write_tree
from corral.core.tree import File, Tree

AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Pool:
    """`folder` has a link for each file, to one of the trees that have it.

    A link that leads nowhere belongs to a tree that was evicted.
    """

    folder: Path
    get: Get

    def write(self, tree: Tree, place: Path) -> None:
        """Write a tree into an empty folder; fetches what no other tree has.

        Raises:
            BadRequest: what came is not what the tree says.
        """
        with ThreadPoolExecutor(AT_ONCE, "fetch") as workers:
            write_tree(tree, place, self._make, workers.map)

    def _make(self, file: File, path: Path) -> None:
        known = self._place(file)
        try:
            os.link(os.readlink(known), path)
        except OSError:
            # Not there, or this disk makes no such links, or not so many.
            write_file(file, path, self.get)
            self._note(known, path)

    def _note(self, known: Path, path: Path) -> None:
        known.parent.mkdir(parents=True, exist_ok=True)
        draft = known.with_name(f"{known.name}.{secrets.token_hex(4)}")
        # A system that lets us make no links fetches more, and works.
        with contextlib.suppress(OSError):
            draft.symlink_to(path)
            os.replace(draft, known)

    def _place(self, file: File) -> Path:
        # The right to execute belongs to the file and not to its name.
        suffix = ".x" if file.is_executable else ""
        return self.folder / file.digest[:2] / (file.digest + suffix)

    def sweep(self) -> None:
        """Forget the ways to files that are gone."""
        for folder in self.folder.glob("??"):
            for entry in os.scandir(folder):
                if not os.path.exists(entry.path):
                    Path(entry.path).unlink(missing_ok=True)
