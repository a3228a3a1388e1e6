"""Models in folders of the manager's machine: found, listed and hashed.

Plain functions that read disks: call them in a thread.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from corral.core.models import hub
from corral.core.models.architecture import CONFIG
from corral.core.models.catalogue import ModelFile
from corral.errors import InvalidField, NotFound
from corral.files.walk import open_inside

Advance = Callable[[int, int], object]
"""Called with bytes done, of how many."""
CONFIG_BYTES = 1 << 20
"""A configuration that is larger is none."""
_PIECE = 4 << 20


def find_folder(text: str, places: Sequence[Path]) -> Path:
    """The folder a source names: a path, or the name of one in `places`.

    Raises:
        InvalidField: a name that is no path leads out of them.
        NotFound: there is none.
    """
    path = Path(text).expanduser()
    if not path.is_absolute() and ".." in path.parts:
        raise InvalidField(
            f"{text} leads out of the folder for models: name the whole path",
            field="source",
        )
    tried = [path] if path.is_absolute() else [place / text for place in places]
    for folder in tried:
        if folder.is_dir():
            return folder
    where = ", ".join(str(folder) for folder in tried) or text
    raise NotFound(
        f"the manager's machine has no folder {where}; one of yours is sent with "
        "'corral models add NAME FOLDER --upload'"
    )


def is_inside(folder: Path, places: Iterable[Path]) -> bool:
    """Does it lie in one of the folders that are there for models, links followed?"""
    real = folder.resolve()
    return any(real.is_relative_to(place.resolve()) for place in places)


def is_named_inside(folder: Path, places: Iterable[Path]) -> bool:
    """Does its path say that it lies in one of them, whatever links make of it?"""
    if ".." in folder.parts:
        return False
    ways = (way for place in places for way in (place, place.resolve()))
    return any(folder.is_relative_to(way) for way in ways)


def check_links(folder: Path, places: Sequence[Path]) -> Path:
    """The folder itself.

    Others may write into `places`: what is found there by name must lie there. Who
    may name any path (an administrator) names that path.

    Raises:
        InvalidField: its path is inside, and a link leads out.
    """
    if is_named_inside(folder, places) and not is_inside(folder, places):
        raise InvalidField(
            f"{folder} is a link that leads out of the folders for models; the folder "
            "it leads to can be added by its own path, with an admin key",
            field="source",
        )
    return folder


def open_below(path: Path, root: Path, places: Iterable[Path]) -> BinaryIO:
    """Open a file; its links may lead anywhere below `root`.

    From the nearest of `places` on, or from `root`, no link put there meanwhile is
    followed.

    Raises:
        OSError: it is no plain file, or lies elsewhere.
    """
    real, fence = path.resolve(), root.resolve()
    if not real.is_relative_to(fence):
        raise OSError(errno.EXDEV, "it is a link that leads out of its folder")
    ways = (place.resolve() for place in places)
    start = next((way for way in ways if real.is_relative_to(way)), fence)
    return open_inside(start, real.relative_to(start).as_posix())


def find_snapshot(cache: Path, repo: str, revision: str) -> Path | None:
    """A repository's files in a hub cache; its name is the revision's hash."""
    base = cache / hub.cache_folder(repo)
    known = base / "refs" / (revision or hub.MAIN)
    # A revision is data: it must not lead out of the folder.
    if ".." in Path(revision).parts or Path(revision).is_absolute():
        return None
    commit = known.read_text().strip() if known.is_file() else revision
    found = base / "snapshots" / commit
    is_there = bool(commit) and found.is_dir()
    return found if is_there and is_inside(found, (cache,)) else None


def list_files(folder: Path) -> Iterator[str]:
    """Names below a folder, without hidden ones, in order."""
    for top, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(top) / name
            if not name.startswith(".") and path.is_file():
                yield path.relative_to(folder).as_posix()


def read_folder(
    folder: Path, advance: Advance = lambda done, total: None, root: Path | None = None
) -> tuple[ModelFile, ...]:
    """Every file of a model with its hash; links may lead anywhere below `root`.

    Raises:
        InvalidField: there is none, or one cannot be read.
    """
    names = hub.chosen(list_files(folder))
    fence = (root or folder).resolve()
    inside = [n for n in names if (folder / n).resolve().is_relative_to(fence)]
    if not inside:
        raise InvalidField(f"{folder} has no files of a model", field="source")
    try:
        sizes = {name: (folder / name).stat().st_size for name in inside}
        total, done = sum(sizes.values()), 0
        files = []
        for name in inside:
            before = done

            def note(size: int, before: int = before) -> None:
                advance(before + size, total)

            files.append(ModelFile(name, sizes[name], hash_file(folder / name, note)))
            done += sizes[name]
    except OSError as error:
        what = error.strerror or str(error)
        raise InvalidField(f"{error.filename}: {what}", field="source") from error
    return tuple(files)


def read_config(folder: Path, root: Path) -> bytes | None:
    """What is in a model's configuration, if it has one that lies below `root`."""
    file = folder / CONFIG
    try:
        is_ours = file.resolve().is_relative_to(root.resolve())
        if is_ours and file.is_file() and file.stat().st_size < CONFIG_BYTES:
            return file.read_bytes()
    except OSError:
        pass
    return None


def hash_file(path: Path, note: Callable[[int], object] = lambda size: None) -> str:
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while piece := stream.read(_PIECE):
            digest.update(piece)
            done += len(piece)
            note(done)
    return digest.hexdigest()
