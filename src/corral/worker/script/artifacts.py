"""What a script leaves: the files in its artifacts folder and those it asked to keep.

It has ended by then. Nothing here can lose how it ended: what could not be kept is
said in one line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pathspec import GitIgnoreSpec

from corral.core.tree import Tree, TreeFile, fault_of
from corral.errors import CorralError
from corral.files.read_folder import TreeReader
from corral.files.walk import all_files, is_within
from corral.worker.script.files import ARTIFACTS, TaskFiles

MAX_FILES = 10_000
_NAMED = 3
RESULT_FILES = 1_000
"""As many stand in the task's result; all of them are listed by the manager."""


@dataclass(slots=True)
class LeftOut:
    """What is not kept, by the reason; said in one line."""

    reasons: dict[str, list[str]] = field(default_factory=dict)

    def add(self, name: str, why: str) -> None:
        self.reasons.setdefault(why, []).append(name)

    def __str__(self) -> str:
        return "; ".join(
            f"{_some(names)} left out: {why}" for why, names in self.reasons.items()
        )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(ascii(name[:100]) for name in names[:_NAMED])
    more = len(names) - _NAMED
    return f"{shown} and {more} more" if more > 0 else shown


@dataclass(slots=True)
class ArtifactFiles:
    """Files of several folders under the names they are kept by."""

    limit_bytes: int
    limit_files: int = MAX_FILES
    left_out: LeftOut = field(default_factory=LeftOut)
    _files: dict[str, tuple[TreeReader, TreeFile]] = field(default_factory=dict)
    _size: int = 0

    @property
    def tree(self) -> Tree:
        return Tree(tuple(replace(f, name=n) for n, (_, f) in self._files.items()))

    def chunk(self, file: TreeFile, index: int) -> bytes:
        reader, source = self._files[file.name]
        return reader.chunk(source, index)

    def take(self, root: Path, names: Iterator[str]) -> None:
        reader = TreeReader(root)
        for name in names:
            if name not in self._files:
                self._take(reader, name)

    def _take(self, reader: TreeReader, name: str) -> None:
        if why := fault_of(name) or _oddity(name):
            self.left_out.add(name, why)
            return
        try:
            source = _resolve(reader.root, name)
            size = (reader.root / source).lstat().st_size
            if len(self._files) >= self.limit_files:
                self.left_out.add(name, f"more than {self.limit_files} files")
            elif self._size + size > self.limit_bytes:
                limit = f"{self.limit_bytes / (1 << 30):g} GiB"
                self.left_out.add(name, f"more than {limit} (CORRAL_ARTIFACT_LIMIT_GB)")
            else:
                file = reader.file(source)
                self._files[name] = (reader, file)
                self._size += file.size
        except OSError as error:
            self.left_out.add(name, error.strerror or "it cannot be read")
        except CorralError as error:
            self.left_out.add(name, error.message)


def _oddity(name: str) -> str | None:
    """Names travel as text, to people and to other systems."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return "its name is no text"
    return None if name.isprintable() else "its name cannot be shown"


def _resolve(root: Path, name: str) -> str:
    """The name of the file itself, where a link leads to one inside."""
    path = root / name
    if not path.is_symlink():
        return name
    if not is_within(path, root):
        raise OSError(0, "it is a link that leads out of the folder")
    return os.path.relpath(os.path.realpath(path), os.path.realpath(root))


def keep_artifacts(
    files: TaskFiles,
    folder: Path,
    working: Path | None,
    patterns: Sequence[str],
    limit_bytes: int,
    limit_files: int = MAX_FILES,
) -> dict[str, Any]:
    """Send and register what was left; what the task's result says of it."""
    harvest = ArtifactFiles(limit_bytes, limit_files)
    left = harvest.left_out
    try:
        harvest.take(folder, all_files(folder, lambda n: left.add(n, "too deep")))
        if patterns and working is not None:
            harvest.take(working, _matching(working, patterns))
        elif patterns:
            left.add(patterns[0], "patterns name files outside of a container only")
        return _send(files, harvest)
    except OSError as error:
        return _lost(error.strerror or str(error))
    except CorralError as error:
        return _lost(error.message)


def _send(files: TaskFiles, harvest: ArtifactFiles) -> dict[str, Any]:
    tree, said = harvest.tree, str(harvest.left_out)
    told: dict[str, Any] = {
        "artifacts": [
            {"name": f.name, "size": f.size, "digest": f.digest}
            for f in tree.files[:RESULT_FILES]
        ]
    }
    if len(tree.files) > RESULT_FILES:
        told["artifacts_total"] = len(tree.files)
    if said:
        told["left_out"] = said
    if tree.files or said:
        files.save(ARTIFACTS, tree, harvest, said)
    return told


def _lost(why: str) -> dict[str, Any]:
    return {"artifacts": [], "left_out": f"no artifact could be kept: {why}"}


def _matching(root: Path, patterns: Sequence[str]) -> Iterator[str]:
    chosen = GitIgnoreSpec.from_lines(patterns)
    for name in all_files(root, lambda name: None):
        if chosen.match_file(name):
            yield name
