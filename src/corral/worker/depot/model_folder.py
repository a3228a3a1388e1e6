"""A node's folder of models: which are there, whose they are, which may go.

Any number of processes share it. Who fetches a model holds its lock alone, who loads
one shares it, and only what nobody holds is removed. Folders that somebody else put
there are used, and never touched.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from corral.wire.models import ModelManifest
from corral.worker.depot.manifest import ModelNote, Unfetched, without_urls
from corral.worker.environments.lock import FileLock, attempt

DESK = ".corral"
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Depot:
    """`limit_bytes` is what fetched models may take together."""

    folder: Path
    limit_bytes: int

    def lock(
        self, name: str, *, shared: bool, check: Callable[[], object] = lambda: None
    ) -> FileLock:
        """Wait for a model's lock; what `check` raises ends the waiting."""
        path = self.folder / DESK / "locks" / name
        while (lock := attempt(path, shared=shared)) is None:
            check()
            time.sleep(_PAUSE_S)
        return lock

    def note(self, name: str) -> ModelNote | None:
        """What is known of a model that is here; None for a stranger's."""
        try:
            data = self._note_path(name).read_bytes()
            return msgspec.json.decode(data, type=ModelNote)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def notes(self) -> Iterator[ModelNote]:
        """Every model that was fetched or found, in no order."""
        with contextlib.suppress(FileNotFoundError):
            for path in sorted((self.folder / DESK / "notes").glob("*.json")):
                if (note := self.note(path.stem)) is not None:
                    yield note

    def home(self, name: str) -> Path:
        """Where a fetched model lies."""
        return self.folder / name

    def begin(self, bill: ModelManifest) -> Path:
        """Where it is made; what is there of it is whole, or is gone on with."""
        place = self._staging(bill)
        with contextlib.suppress(FileNotFoundError):
            for other in place.parent.iterdir():
                if other != place:
                    shutil.rmtree(other, ignore_errors=True)
        place.mkdir(parents=True, exist_ok=True)
        return place

    def _staging(self, bill: ModelManifest) -> Path:
        # Of another revision nothing can be told by names and sizes.
        return self.folder / DESK / "staging" / bill.name / bill.mark

    def touch(self, name: str) -> None:
        """It was used now, which is what eviction goes by."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(self._note_path(name))

    def adopt(self, bill: ModelManifest, folder: Path) -> None:
        """Use a folder that is not ours."""
        self._write(ModelNote(without_urls(bill), str(folder), is_ours=False))

    def renew(self, note: ModelNote, bill: ModelManifest) -> None:
        """The files are the same; what is said of them is not."""
        self._write(ModelNote(without_urls(bill), note.folder, note.is_ours))

    def settle(self, bill: ModelManifest) -> None:
        """What is staged becomes the model, in the place of an older one."""
        home, trash = self.home(bill.name), self._trash()
        if home.exists():
            trash.parent.mkdir(parents=True, exist_ok=True)
            home.replace(trash)
        self._staging(bill).replace(home)
        self._write(ModelNote(without_urls(bill), str(home)))
        shutil.rmtree(trash, ignore_errors=True)

    def make_room(self, bill: ModelManifest) -> None:
        """Remove the least recently used until this one fits.

        Raises:
            Unfetched: it does not fit all the same.
        """
        if bill.size > self.limit_bytes:
            raise Unfetched(
                f"model {bill.name} takes {_gb(bill.size)}, and this node keeps "
                f"{_gb(self.limit_bytes)} of models (CORRAL_MODEL_DISK_GB)"
            )
        ours = [n for n in self.notes() if n.is_ours and n.bill.name != bill.name]
        total = sum(note.bill.size for note in ours) + bill.size
        for note in sorted(ours, key=lambda note: self._used(note.bill.name)):
            if total <= self.limit_bytes and self._has_space(bill.size):
                return
            if self.remove(note.bill.name):
                total -= note.bill.size
        if total > self.limit_bytes:
            raise Unfetched(
                f"no room for model {bill.name}: the others on this node are in use "
                f"({_gb(self.limit_bytes)} at most, CORRAL_MODEL_DISK_GB)"
            )
        if not self._has_space(bill.size):
            raise Unfetched(
                f"the disk of {self.folder} has no {_gb(bill.size)} left for model "
                f"{bill.name}"
            )

    def remove(self, name: str) -> bool:
        """Remove a model that we fetched, unless somebody holds it."""
        lock = attempt(self.folder / DESK / "locks" / name, shared=False)
        if lock is None:
            return False
        try:
            note = self.note(name)
            self._note_path(name).unlink(missing_ok=True)
            if note is not None and note.is_ours and self.home(name).exists():
                trash = self._trash()
                trash.parent.mkdir(parents=True, exist_ok=True)
                self.home(name).replace(trash)
                shutil.rmtree(trash, ignore_errors=True)
        finally:
            lock.release()
        return True

    def _has_space(self, size: int) -> bool:
        staged = self.folder / DESK
        staged.mkdir(parents=True, exist_ok=True)
        return shutil.disk_usage(staged).free > size

    def _used(self, name: str) -> float:
        try:
            return self._note_path(name).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def _trash(self) -> Path:
        return self.folder / DESK / "trash" / secrets.token_hex(6)

    def _note_path(self, name: str) -> Path:
        return self.folder / DESK / "notes" / f"{name}.json"

    def _write(self, note: ModelNote) -> None:
        path = self._note_path(note.bill.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name(f".{path.name}.half")
        half.write_bytes(msgspec.json.encode(note))
        half.replace(path)


def _gb(size: int) -> str:
    if size < 1 << 20:
        return f"{size} bytes"
    return f"{size / (1 << 30):.3g} GiB"
