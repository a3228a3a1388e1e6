"""Which files of a folder go along: all but what its .gitignore files exclude.

Also how a file is opened and a link judged without being led out of the folder.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pathspec import GitIgnoreSpec

from corral.core.tree import stays
from corral.errors import InvalidField

# Never part of a source: history, and what running it leaves behind.
_NEVER = frozenset({".git", "__pycache__"})
DEPTH = 64
_HAS_FOLDER_FDS = os.open in os.supports_dir_fd


@dataclass(frozen=True, slots=True)
class _Rules:
    """The .gitignore files that hold for a folder, the outermost first."""

    specs: tuple[tuple[str, GitIgnoreSpec], ...] = ()

    def within(self, folder: Path, name: str) -> _Rules:
        file = folder / ".gitignore"
        if file.is_symlink() or not file.is_file():
            return self
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
            spec = GitIgnoreSpec.from_lines(text.splitlines())
        except ValueError as error:
            raise InvalidField(f"{name}.gitignore: {error}", field="folder") from error
        return _Rules((*self.specs, (name, spec)))

    def ignore(self, name: str) -> bool:
        """The nearest file that says anything of `name` decides."""
        for base, spec in reversed(self.specs):
            said = spec.check_file(name[len(base) :]).include
            if said is not None:
                return said
        return False


def source_files(root: Path) -> Iterator[tuple[str, Path]]:
    """(name, path) of every file and link that goes along, in order of names."""
    todo = [("", root, _Rules())]
    found: list[tuple[str, Path]] = []
    while todo:
        base, folder, rules = todo.pop()
        rules = rules.within(folder, base)
        for entry in os.scandir(folder):
            name = base + entry.name
            if entry.name in _NEVER:
                continue
            if entry.is_dir(follow_symlinks=False):
                if not rules.ignore(name + "/"):
                    todo.append((name + "/", Path(entry.path), rules))
            elif not rules.ignore(name) and _is_kept(entry):
                found.append((name, Path(entry.path)))
    return iter(sorted(found))


def _is_kept(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() or entry.is_file(follow_symlinks=False)


def all_files(root: Path, on_fault: Callable[[str], object]) -> Iterator[str]:
    """The names of everything below a folder that is not a folder itself.

    Nothing leads out of it, even while somebody else changes it. What is too deep or
    cannot be listed is told to `on_fault`.
    """
    start = len(str(root)) + 1

    def say(error: OSError) -> None:
        on_fault(str(error.filename)[start:])

    for base, folders, files, at in os.fwalk(root, onerror=say):
        prefix = base[start:] + "/" if base != str(root) else ""
        if prefix.count("/") >= DEPTH:
            folders.clear()
            on_fault(prefix)
            continue
        links = [name for name in folders if _is_link(name, at)]
        folders[:] = sorted(set(folders).difference(links))
        yield from (prefix + name for name in sorted((*files, *links)))


def _is_link(name: str, at: int) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(name, dir_fd=at).st_mode)
    except OSError:
        return False


def link_target(root: Path, name: str) -> str:
    """Where the link `name` leads.

    Raises:
        InvalidField: out of the folder.
    """
    path = root / name
    target = os.readlink(path)
    if not stays(name, target) or not is_within(path, root):
        raise InvalidField(
            f"{name} is a link that leads out of the folder, to {target}: ignore it "
            "in .gitignore, or put a copy in its place",
            field="folder",
        )
    return target


def is_within(path: Path, root: Path) -> bool:
    """Does it lead to a place inside, through all links on the way?"""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def open_inside(root: Path, name: str) -> BinaryIO:
    """Open a plain file, never through a link, not even one put there meanwhile.

    Raises:
        OSError: it cannot be read, is no plain file, or lies behind a link.
    """
    if not _HAS_FOLDER_FDS:
        return (root / name).open("rb")
    *folders, last = name.split("/")
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in folders:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            inner = os.open(part, flags, dir_fd=at)
            os.close(at)
            at = inner
        # Not to wait: a pipe has no writer any more.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
        file = os.open(last, flags, dir_fd=at)
    finally:
        os.close(at)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is no plain file")
    return os.fdopen(file, "rb")
