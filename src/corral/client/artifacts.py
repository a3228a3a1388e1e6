"""The calls about files that tasks left: list them, fetch them checked.

Names come from whoever ran the task: none of them leads out of the folder they are
fetched to.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from datetime import datetime
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from corral.client.bar import Advance
from corral.client.exchange import Flow, Request, get, segment
from corral.client.fault import decode
from corral.client.task import TaskRef, id_of
from corral.client.value import Value
from corral.core.tree import CHUNK_BYTES, fault_of
from corral.errors import Conflict, NotFound, Unavailable


class ArtifactInfo(Value, frozen=True, kw_only=True):
    """`digest` is the SHA-256 of the file."""

    name: str
    size: int
    digest: str


class ArtifactList(Value, frozen=True, kw_only=True):
    """What one attempt left; `left_out` says in one line what could not be kept."""

    task_id: str
    attempt: int | None = None
    artifacts: list[ArtifactInfo] = []
    size: int = 0
    left_out: str = ""
    created_at: datetime | None = None


def artifacts(task: TaskRef, *, attempt: int | None = None) -> Flow[ArtifactList]:
    """The files a task left: its last attempt that left any, or the one named."""
    path = f"/tasks/{segment(id_of(task))}/artifacts"
    return decode((yield get(path, attempt=attempt)), ArtifactList)


def download_artifacts(
    task: TaskRef,
    name: str | None = None,
    *,
    to: str | os.PathLike[str] = ".",
    attempt: int | None = None,
    on_progress: Advance | None = None,
) -> Flow[list[Path]]:
    """Fetch one file a task left, or all of them; where they are now.

    Files that are there already with the same content are not fetched again; others
    are replaced, once the new one is whole.

    Args:
        task: The task, or its id.
        name: One file; all without it.
        to: The folder to put them in, made when missing.
        attempt: The attempt that left them; else the last that left any.
        on_progress: Called with bytes done, of how many.

    Raises:
        NotFound: It left no such file.
        Conflict: A name cannot be written below `to`.
    """
    listed = yield from artifacts(task, attempt=attempt)
    chosen = [a for a in listed.artifacts if name in (None, a.name)]
    if name is not None and not chosen:
        raise NotFound(f"task {listed.task_id} left no file {name!r}", name=name)
    fetch = _Fetch(Path(to), listed, sum(a.size for a in chosen), on_progress)
    paths = []
    for artifact in chosen:
        paths.append((yield from fetch.one(artifact)))
    return paths


class _Fetch:
    """One download of several files."""

    def __init__(
        self, to: Path, listed: ArtifactList, total: int, on_progress: Advance | None
    ) -> None:
        self._to = to
        self._listed = listed
        self._total = total
        self._done = 0
        self._say = on_progress
        self._written: set[tuple[int, int]] = set()

    def one(self, artifact: ArtifactInfo) -> Flow[Path]:
        path = _place(self._to, artifact.name)
        if not self._is_same(path, artifact):
            yield from self._fetch(artifact, path)
        facts = path.stat()
        self._written.add((facts.st_dev, facts.st_ino))
        return path

    def _is_same(self, path: Path, artifact: ArtifactInfo) -> bool:
        if not path.exists():
            return False
        facts = path.stat()
        if (facts.st_dev, facts.st_ino) in self._written:
            raise Conflict(f"{artifact.name!r} and another name are one file here")
        if facts.st_size != artifact.size or _digest(path) != artifact.digest:
            return False
        self._advance(artifact.size)
        return True

    def _fetch(self, artifact: ArtifactInfo, path: Path) -> Flow[None]:
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".corral-")
        try:
            with os.fdopen(handle, "wb") as file:
                found = yield from self._copy(artifact, file)
            if found != artifact.digest:
                raise Unavailable(
                    f"what came is not {artifact.name!r} as the task left it: it was "
                    "changed on its way"
                )
            os.chmod(draft, 0o666 & ~_umask())
            os.replace(draft, path)
        finally:
            Path(draft).unlink(missing_ok=True)

    def _copy(self, artifact: ArtifactInfo, file: BinaryIO) -> Flow[str]:
        """A part at a time: no more is in memory, or asked for again."""
        task = segment(self._listed.task_id)
        path = f"/tasks/{task}/artifacts/{quote(artifact.name, safe='/')}"
        query = {"attempt": str(self._listed.attempt)}
        whole = hashlib.sha256()
        for start in range(0, artifact.size, CHUNK_BYTES):
            end = min(start + CHUNK_BYTES, artifact.size)
            span = {"Range": f"bytes={start}-{end - 1}"}
            response = yield Request(
                "GET", path, query, is_repeatable=True, headers=span
            )
            if len(response.body) != end - start:
                raise Unavailable(f"{artifact.name!r} is not as large as was said")
            whole.update(response.body)
            file.write(response.body)
            self._advance(end - start)
        return whole.hexdigest()

    def _advance(self, size: int) -> None:
        self._done += size
        if self._say is not None:
            self._say(self._done, self._total)


def _place(to: Path, name: str) -> Path:
    """Where a file of this name goes: below `to`, and through no link."""
    is_foreign = os.sep != "/" and any(c in name for c in "\\:")
    if fault_of(name) or is_foreign:
        raise Conflict(f"{name!r} cannot be written below {to}", name=name)
    path = to
    path.mkdir(parents=True, exist_ok=True)
    *folders, last = name.split("/")
    for part in folders:
        path = path / part
        _check_no_link(path)
        path.mkdir(exist_ok=True)
    path = path / last
    _check_no_link(path)
    if path.is_dir():
        raise Conflict(f"{path} is a folder", name=name)
    return path


def _check_no_link(path: Path) -> None:
    if path.is_symlink():
        raise Conflict(f"{path} is a link: it would lead elsewhere", path=str(path))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
