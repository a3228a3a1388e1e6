"""The calls about what a task leaves: output, log, commands beside it, files."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from corral.client.calls.tasks import TaskRef, id_of
from corral.client.http.endpoint import Flow, Items, Request, Stream, get, poll, segment
from corral.client.http.errors import decode
from corral.client.http.payload import encode
from corral.client.progress import Advance
from corral.core.tree import CHUNK_BYTES, fault_of
from corral.errors import Conflict, NotFound, Unavailable
from corral.wire.output import (
    ArtifactInfo,
    ArtifactList,
    ExecEnd,
    ExecInfo,
    ExecOutput,
    ExecPage,
    LogLine,
    LogOutput,
    Piece,
    StreamPage,
)
from corral.wire.tasks import Progress

_UNKNOWN = -1.0
EXEC_POLL_S = 20.0
_BEGIN_S = 15.0


def stream(task: TaskRef) -> Stream[Piece]:
    """What a task emits, as it does, until it ends; `result` then tells how.

    Pieces come in order and once, through lost connections. They are kept in the
    manager's memory alone: of one that ended a while ago there are none.
    """
    path, cursor = f"/tasks/{segment(id_of(task))}/output", None
    for wait_s in poll():
        page = decode((yield get(path, wait_s=wait_s, after=cursor)), StreamPage)
        if page.pieces:
            yield Items(page.pieces)
        if page.done:
            return
        cursor = page.cursor


# The calls about what a task says while it runs: its log, and how far it is.


def logs(
    task: TaskRef,
    *,
    follow: bool = False,
    attempt: int | None = None,
    tail: int | None = None,
) -> Stream[LogLine]:
    """The lines a task printed; with `follow`, also those to come until it ends.

    Each line comes once and in order, through lost connections and restarts of the
    manager. `attempt` asks for one attempt only, `tail` for the last so many lines
    of what is there.
    """
    tries = poll() if follow else poll(longest_s=0.0)
    return _pages(task, tries, None, attempt=attempt, tail=tail)


def follow(
    task: TaskRef, *, attempt: int | None = None, tail: int | None = None
) -> Stream[LogLine | Progress]:
    """What a task prints until it ends, and a Progress when it says how far it is."""
    return _pages(task, poll(), _UNKNOWN, attempt=attempt, tail=tail)


def _pages(
    task: TaskRef,
    tries: Iterator[float],
    known: float | None,
    **where: int | str | None,
) -> Stream[Any]:
    path = f"/tasks/{segment(id_of(task))}/logs"
    for wait_s in tries:
        response = yield get(path, wait_s=wait_s, progress=known, **where)
        # Times may come as seconds since the epoch here.
        page = decode(response, LogOutput, strict=False)
        if page.lines:
            yield Items(page.lines)
        if known is not None and page.progress and page.progress.fraction is not None:
            if page.progress.fraction != known:
                yield Items([page.progress])
            known = page.progress.fraction
        if page.done or not (wait_s or page.lines):
            return
        where = {"attempt": where["attempt"], "after": page.cursor}


# The calls that run a command beside a running script and read what it prints.


def start_exec(task: TaskRef, command: Sequence[str]) -> Flow[ExecInfo]:
    """Run a command in the environment of a running script; returns when it runs.

    It ends when nobody reads its output for half a minute.

    Raises:
        Conflict: the task does not run, is no script, or the command is not there.
    """
    response = yield Request(
        "POST",
        f"/tasks/{segment(id_of(task))}/exec",
        body=encode({"command": list(command)}),
        wait_s=_BEGIN_S,
    )
    return decode(response, ExecInfo)


def exec_output(run: ExecInfo) -> Stream[ExecOutput | ExecEnd]:
    """What a command prints, as it prints it; last comes its end."""
    after = 0
    for wait_s in poll(longest_s=EXEC_POLL_S):
        page = decode((yield get(_path(run), wait_s=wait_s, after=after)), ExecPage)
        if page.chunks:
            yield Items(page.chunks)
        elif page.done:
            yield Items([ExecEnd(exit_code=page.exit_code, error=page.error)])
            return
        after = page.next


def stop_exec(run: ExecInfo) -> Flow[None]:
    """End a command."""
    yield Request("DELETE", _path(run), is_repeatable=True)


def _path(run: ExecInfo) -> str:
    return f"/tasks/{segment(run.task_id)}/exec/{segment(run.exec_id)}"


# The calls about files that tasks left: list them, fetch them checked.


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
