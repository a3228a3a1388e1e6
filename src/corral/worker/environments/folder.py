"""What is done to whole folders: copy, seal, measure, remove, look for stray links.

Nothing here follows a link or recurses: folders come from strangers, in any depth.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path, PurePath

# As many as Linux follows before it calls a path a circle.
_HOPS = 40


def walk(root: Path) -> Iterator[os.DirEntry[str]]:
    """Everything below a folder, each folder before what is in it."""
    todo = [str(root)]
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)


def copy(source: Path, goal: Path) -> None:
    """A copy that shares nothing with the original and may be written to."""
    goal.mkdir()
    for entry in walk(source):
        place = goal / Path(entry.path).relative_to(source)
        if entry.is_symlink():
            place.symlink_to(os.readlink(entry.path))
        elif entry.is_dir(follow_symlinks=False):
            place.mkdir()
        else:
            shutil.copyfile(entry.path, place)
            if entry.stat(follow_symlinks=False).st_mode & stat.S_IXUSR:
                place.chmod(0o755)


def seal(root: Path) -> None:
    """Take away the right to write, from everything."""
    for entry in walk(root):
        if not entry.is_symlink():
            mode = stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
            os.chmod(entry.path, mode & ~0o222)
    root.chmod(0o555)


def measure(root: Path) -> int:
    """Bytes on disk; a file with several names counts with its share."""
    total = 0
    for entry in walk(root):
        # Others may be at work in it.
        with contextlib.suppress(FileNotFoundError):
            facts = entry.stat(follow_symlinks=False)
            size = getattr(facts, "st_blocks", -(-facts.st_size // 512)) * 512
            total += (
                size // max(facts.st_nlink, 1) if stat.S_ISREG(facts.st_mode) else size
            )
    return total


def find_stray_link(root: Path) -> tuple[str, str] | None:
    """A link that leads out of the folder, by any way: its name and its target."""
    for entry in walk(root):
        if entry.is_symlink():
            name = Path(entry.path).relative_to(root)
            if _leads_out(root, name):
                return name.as_posix(), os.readlink(entry.path)
    return None


def _leads_out(root: Path, name: PurePath) -> bool:
    # Step by step and not with realpath: a way that leaves the folder and comes back
    # by its present name would lead elsewhere in a copy.
    at: list[str] = []
    todo, hops = list(reversed(name.parts)), _HOPS
    while todo:
        part = todo.pop()
        if part == "..":
            if not at:
                return True
            at.pop()
            continue
        at.append(part)
        path = root.joinpath(*at)
        if path.is_symlink():
            target = PurePath(os.readlink(path))
            if target.is_absolute() or target.drive or target.root:
                return True
            hops -= 1
            if hops < 0:
                return False
            at.pop()
            todo.extend(reversed(target.parts))
    return False


def remove(root: Path) -> None:
    """Remove a folder with all that is in it, whatever its modes and its depth."""
    if sys.platform == "win32":
        shutil.rmtree(root, onerror=_unprotect)
        return
    with contextlib.suppress(FileNotFoundError):
        top = _open_folder(str(root))
        try:
            _empty(top)
        finally:
            os.close(top)
        root.rmdir()


def _unprotect(call: object, path: str, _: object) -> None:
    if callable(call) and os.path.lexists(path):
        os.chmod(path, stat.S_IWRITE)
        call(path)


def _open_folder(name: str, within: int | None = None) -> int:
    """Open a folder, never through a link, and make it ours to change."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        fd = os.open(name, flags, dir_fd=within)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=within)
        fd = os.open(name, flags, dir_fd=within)
    os.fchmod(fd, 0o700)
    return fd


def _empty(top: int) -> None:
    """Folders in folders are moved up before they are emptied.

    So neither names nor open files add up, however deep it goes.
    """
    todo = _unlink_files(top, top)
    while todo:
        name = todo.pop()
        inner = _open_folder(name, top)
        try:
            todo += _unlink_files(inner, top)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=top)


def _unlink_files(folder: int, top: int) -> list[str]:
    """Leaves a folder empty; the folders that were in it, by their names in `top`."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    moved = []
    for name, is_folder in found:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
            continue
        here = f".{secrets.token_hex(8)}"
        # To give it another parent, its own right to be written is needed.
        os.close(_open_folder(name, folder))
        os.rename(name, here, src_dir_fd=folder, dst_dir_fd=top)
        moved.append(here)
    return moved
