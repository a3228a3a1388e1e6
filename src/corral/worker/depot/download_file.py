"""One file of a model: fetched from where it can be had, gone on with where it broke.

What came so far lies beside it as `.part`; a file under its own name is whole.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from corral.core.tree import CHUNK_BYTES
from corral.errors import CorralError
from corral.trust import tls_context
from corral.wire.models import ManifestFile
from corral.worker.depot.manifest import CorruptModel, Unfetched

ROUNDS = 3
PAUSE_S = 0.5
STALL_S = 30.0
NEAR_S = 3.0
_PIECE = 1 << 20


class SourceClosed(Exception):
    """This way does not lead there, now or ever."""


class FileSource(Protocol):
    """Somewhere the bytes of one file can be had."""

    def read(self, start: int) -> Iterator[bytes]:
        """Its bytes from `start` on.

        Raises:
            Closed: they cannot be had here.
        """


@dataclass(frozen=True, slots=True)
class HttpSource:
    """A URL; its server may know ranges or not.

    One that is near answers soon or not at all, and is reached by no proxy.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    ca_file: str | None = None
    is_near: bool = False

    def read(self, start: int) -> Iterator[bytes]:
        # Late: most workers never fetch anything.
        import httpx

        headers = {"Accept-Encoding": "identity", **self.headers}
        if start:
            headers["Range"] = f"bytes={start}-"
        try:
            with (
                httpx.Client(
                    timeout=httpx.Timeout(STALL_S, connect=self._connect_s),
                    verify=self._tls(),
                    follow_redirects=not self.is_near,
                    trust_env=not self.is_near,
                ) as client,
                client.stream("GET", self.url, headers=headers) as answer,
            ):
                if answer.status_code not in (200, 206):
                    host = answer.request.url.host
                    raise SourceClosed(f"{host} answered {answer.status_code}")
                skip = start - _first_byte(answer.headers.get("Content-Range", ""))
                if skip < 0:
                    raise SourceClosed("other bytes came than were asked for")
                for piece in answer.iter_raw():
                    if skip < len(piece):
                        yield piece[skip:]
                    skip = max(0, skip - len(piece))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise SourceClosed(str(error) or type(error).__name__) from error

    @property
    def _connect_s(self) -> float:
        return NEAR_S if self.is_near else STALL_S

    def _tls(self) -> ssl.SSLContext:
        return tls_context(self.url, self.ca_file)


def _first_byte(told: str) -> int:
    """Where an answer begins; not by its status, which some servers get wrong."""
    found = re.match(r"bytes (\d+)-", told)
    return int(found[1]) if found else 0


@dataclass(frozen=True, slots=True)
class ObjectSource:
    """Objects of the manager's store, in order."""

    parts: Sequence[str]
    get: Callable[[str], bytes]

    def read(self, start: int) -> Iterator[bytes]:
        first, skip = divmod(start, CHUNK_BYTES)
        for digest in self.parts[first:]:
            try:
                data = self.get(digest)
            except CorralError as error:
                raise SourceClosed(error.message) from error
            yield data[skip:]
            skip = 0


@dataclass(slots=True)
class Transfer:
    """Fetches files into one folder; `note` gets bytes that came, as they come.

    `check` is called in between; what it raises ends the fetch, which can be gone on
    with later.
    """

    model: str
    folder: Path
    note: Callable[[int], object] = lambda count: None
    check: Callable[[], object] = lambda: None

    def fetch(self, file: ManifestFile, ways: Sequence[FileSource]) -> None:
        """Have the file under its name, found to be the one that is meant.

        Raises:
            Unfetched: no way led to all of it.
            CorruptModel: what came is something else; it is removed.
        """
        target = self.folder / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        # Its hash in the name: what is left of another revision is not gone on with.
        part = target.with_name(f".{target.name}.{file.sha256[:16]}.part")
        done = self._begin(file, part)
        why, idle = "nobody has it", 0
        while idle < ROUNDS:
            before = done
            for way in ways:
                try:
                    done = self._append(file, part, way, done)
                except SourceClosed as error:
                    why = str(error)
                    done = part.stat().st_size if part.exists() else 0
                if done >= file.size:
                    self._finish(file, part, target)
                    return
            self.check()
            # A long fetch may break often; only one that does not move is given up.
            idle = 0 if done > before else idle + 1
            time.sleep(PAUSE_S * idle)
        raise Unfetched(
            f"model {self.model}: {done} of {file.size} bytes of {file.name} came, "
            f"then: {why}"
        )

    def _begin(self, file: ManifestFile, part: Path) -> int:
        done = part.stat().st_size if part.exists() else 0
        if done > file.size:
            part.unlink()
            done = 0
        self.note(done)
        return done

    def _append(
        self, file: ManifestFile, part: Path, way: FileSource, done: int
    ) -> int:
        with part.open("ab") as out:
            if done >= file.size:
                return done
            for piece in way.read(done):
                self.check()
                # More than it should be is as wrong as other bytes.
                out.write(piece)
                done += len(piece)
                self.note(len(piece))
                if done > file.size:
                    break
        return done

    def _finish(self, file: ManifestFile, part: Path, target: Path) -> None:
        found = hash_file(part, self.check)
        if found != file.sha256:
            part.unlink()
            raise corrupt(self.model, file, found, "it was removed")
        with part.open("rb") as stream:
            os.fsync(stream.fileno())
        part.replace(target)


def corrupt(model: str, file: ManifestFile, found: str, what: str) -> CorruptModel:
    return CorruptModel(
        f"{file.name} of model {model} is corrupt: its SHA-256 is {found} instead of "
        f"{file.sha256}; {what}",
        file=file.name,
    )


def hash_file(path: Path, check: Callable[[], object] = lambda: None) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(4 * _PIECE):
            check()
            digest.update(piece)
    return digest.hexdigest()
