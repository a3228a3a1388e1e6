"""Brings models of the catalogue to this node: looks here, then fetches, once for all.

The manager is asked what a model consists of. While it does not answer, what is here
already goes on being used.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from corral.core.models import hub
from corral.core.tasks.job_type import NAME
from corral.wire.models import ManifestFile, ModelManifest
from corral.worker.depot.download_file import (
    FileSource,
    HttpSource,
    ObjectSource,
    Transfer,
    corrupt,
    hash_file,
)
from corral.worker.depot.manifest import (
    CorruptModel,
    ModelNote,
    Unfetched,
    has_size,
    read_bill,
)
from corral.worker.depot.model_folder import Depot
from corral.worker.environments.lock import FileLock
from corral.worker.manager_link import Away, ManagerLink, ReportRefused

log = logging.getLogger(__name__)
Tell = Callable[[float, str], object]
"""Called with how far it is, 0 to 1, and in words."""
ASKED_S = 5.0
_TELL_S = 0.5
_READING_S = 0.5
_GB = 1 << 30


@dataclass(frozen=True, slots=True)
class ManagerAccess:
    """How this worker speaks to its manager when it fetches files."""

    worker_id: str
    url: str
    key: str
    ca_file: str | None = None

    def path(self, model: str, file: str = "") -> str:
        below = f"/files/{quote(file)}" if file else ""
        return f"/workers/{self.worker_id}/models/{quote(model, safe='')}{below}"

    def way(self, model: str, file: ManifestFile) -> HttpSource:
        url = self.url.rstrip("/") + self.path(model, file.name)
        return HttpSource(url, {"Authorization": f"Bearer {self.key}"}, self.ca_file)


@dataclass(frozen=True, slots=True)
class ModelFolders:
    """Folders that may have a model already: a hub's cache, and one that is shared."""

    hub_cache: Path | None = None
    shared: Path | None = None


def optional(text: str | None) -> Path | None:
    return Path(text) if text else None


@dataclass(frozen=True, slots=True)
class FetchedModel:
    """A model that stays on disk until it is released.

    `trouble` is why nobody could say more of it; then it may not be here at all.
    """

    lock: FileLock | None = None
    trouble: str = ""
    note: ModelNote | None = None

    def release(self) -> None:
        if self.lock is not None:
            self.lock.release()


class ModelFetch:
    """One worker's way to its node's models. Safe to use from any thread."""

    def __init__(
        self,
        depot: Depot,
        link: ManagerLink,
        access: ManagerAccess,
        folders: ModelFolders,
    ) -> None:
        self._depot = depot
        self._link = link
        self._access = access
        self._model_folders = folders
        self._asked: dict[str, tuple[float, ModelManifest | None]] = {}

    def bring(
        self,
        name: str,
        tell: Tell = lambda share, text: None,
        check: Callable[[], object] = lambda: None,
        edition: str = "",
    ) -> FetchedModel:
        """Have a model's files here, if the catalogue has it.

        Args:
            name: its name in the catalogue.
            tell: is told how far it is.
            check: called in between; what it raises ends the wait, not the model.
            edition: what the catalogue has of it by now, where somebody said so.

        Raises:
            Unfetched: they cannot be had.
            CorruptModel: they are not what the catalogue says.
        """
        if not NAME.fullmatch(name):
            return FetchedModel()
        try:
            bill = self._manifest(name, tell, check, edition)
        except Away as error:
            return self._what_is_here(name, error.message)
        if bill is None:
            return FetchedModel()
        if bill.status == "failed":
            brought = self._what_is_here(name, str(bill.error))
            if brought.note is None:
                raise Unfetched(f"model {name}: {bill.error}")
            return brought
        while True:
            lock = self._depot.lock(name, shared=True, check=check)
            note = self._depot.note(name)
            if note is not None and note.is_of(bill) and note.is_whole():
                self._depot.touch(name)
                return FetchedModel(lock, note=note)
            lock.release()
            self._have(bill, tell, check)

    def _manifest(
        self, name: str, tell: Tell, check: Callable[[], object], edition: str
    ) -> ModelManifest | None:
        asked_at, known = self._asked.get(name, (-ASKED_S, None))
        is_news = edition and (known is None or known.edition != edition)
        if time.monotonic() - asked_at < ASKED_S and not is_news:
            return known
        while True:
            try:
                data = self._link.get(self._access.path(name))
            except ReportRefused as error:
                raise Unfetched(f"model {name}: {error.message}") from error
            bill = read_bill(data) if data is not None else None
            if bill is None or bill.status != "reading":
                break
            tell(0.0, f"the manager reads the source of {name}")
            check()
            time.sleep(_READING_S)
        self._asked[name] = (time.monotonic(), bill)
        return bill

    def _what_is_here(self, name: str, why: str) -> FetchedModel:
        lock = self._depot.lock(name, shared=True)
        note = self._depot.note(name)
        if note is not None and note.is_whole():
            log.info("model %s is used as it is here: %s", name, why)
            return FetchedModel(lock, note=note)
        lock.release()
        return FetchedModel(trouble=why)

    def _have(
        self, bill: ModelManifest, tell: Tell, check: Callable[[], object]
    ) -> None:
        """Alone: whoever waited finds that somebody else has done it."""
        lock = self._depot.lock(bill.name, shared=False, check=check)
        try:
            note = self._depot.note(bill.name)
            if note is not None and note.has_files_of(bill) and note.is_whole():
                self._depot.renew(note, bill)
                return
            if not self._find(bill, note, check):
                self._fetch(bill, note, tell, check)
        finally:
            lock.release()

    # what is here ----------------------------------------------------------------
    def _find(
        self, bill: ModelManifest, note: ModelNote | None, check: Callable[[], object]
    ) -> bool:
        """Use a folder that has all of it, if one has."""
        home = self._depot.home(bill.name)
        is_strangers = home.exists() and not (note is not None and note.is_ours)
        for folder in self._folders(bill, home if is_strangers else None):
            if not all(has_size(folder / f.name, f.size) for f in bill.files):
                if folder == home:
                    raise Unfetched(
                        f"{home} is not model {bill.name} of the catalogue: move it "
                        "away, or take the model out of the catalogue"
                    )
                continue
            for file in bill.files:
                found = hash_file(folder / file.name, check)
                if found != file.sha256:
                    wrong = corrupt(bill.name, file, found, f"it lies in {folder}")
                    if folder == home:
                        raise wrong
                    log.warning("%s", wrong.message)
                    break
            else:
                self._depot.adopt(bill, folder)
                return True
        return False

    def _folders(self, bill: ModelManifest, home: Path | None) -> Sequence[Path]:
        found = [home] if home else []
        source, shared = bill.source, self._model_folders.shared
        if os.path.isabs(source):
            found.append(Path(source))
        if shared is not None:
            found.append(shared / bill.name)
        if source.startswith("hf:") and self._model_folders.hub_cache is not None:
            repo = source.removeprefix("hf:").removeprefix("//")
            base = self._model_folders.hub_cache / hub.cache_folder(repo)
            found.append(base / "snapshots" / bill.revision)
        return [folder for folder in found if folder.is_dir()]

    # what is not -----------------------------------------------------------------
    def _fetch(
        self,
        bill: ModelManifest,
        old: ModelNote | None,
        tell: Tell,
        check: Callable[[], object],
    ) -> None:
        self._depot.make_room(bill)
        staging = self._depot.begin(bill)
        count = _FetchProgress(bill, tell)
        transfer = Transfer(bill.name, staging, count.add, check)
        log.info("fetching model %s, %d bytes", bill.name, bill.size)
        for file in bill.files:
            is_here = has_size(staging / file.name, file.size)
            if is_here or (old is not None and _reuse(old, file, staging)):
                count.add(file.size)
            else:
                self._fetch_file(transfer, bill, file)
        _tidy(staging, {file.name for file in bill.files})
        self._depot.settle(bill)
        tell(1.0, f"{bill.name} is here")

    def _fetch_file(
        self, transfer: Transfer, bill: ModelManifest, file: ManifestFile
    ) -> None:
        """From a peer where one has it; its word counts for nothing, the hash does."""
        ways = self._ways(bill, file)
        if not file.peers:
            transfer.fetch(file, ways)
            return
        near: list[FileSource] = [HttpSource(url, is_near=True) for url in file.peers]
        try:
            transfer.fetch(file, [*near, *ways])
        except CorruptModel as error:
            # Bytes of several may be in it: it is begun anew, without them.
            log.warning("a peer gave other bytes: %s", error.message)
            transfer.fetch(file, ways)

    def _ways(self, bill: ModelManifest, file: ManifestFile) -> list[FileSource]:
        ways: list[FileSource] = [HttpSource(file.url)] if file.url else []
        if file.parts or not file.size:
            return [*ways, ObjectSource(file.parts, self._link.get_object)]
        return [*ways, self._access.way(bill.name, file)]


class _FetchProgress:
    """Tells how far a fetch is, now and then."""

    def __init__(self, bill: ModelManifest, tell: Tell) -> None:
        self._manifest = bill
        self._tell = tell
        self._done = 0
        self._told_at = 0.0

    def add(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now - self._told_at >= _TELL_S:
            self._told_at = now
            total = max(self._manifest.size, 1)
            text = f"fetching {self._manifest.name}: {_sized(self._done)} of "
            self._tell(min(self._done / total, 1.0), text + _sized(total))


def _sized(count: int) -> str:
    if count < _GB // 10:
        return f"{count / (1 << 20):.1f} MB"
    return f"{count / _GB:.2f} GB"


def _reuse(old: ModelNote, file: ManifestFile, staging: Path) -> bool:
    """A file that is the same in the revision that is here is not fetched again."""
    if not any((f.name, f.sha256) == (file.name, file.sha256) for f in old.bill.files):
        return False
    source, target = Path(old.folder) / file.name, staging / file.name
    if not old.is_ours or not has_size(source, file.size):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        return False
    return True


def _tidy(staging: Path, wanted: set[str]) -> None:
    """Nothing of an earlier try, of another revision, becomes part of the model."""
    for path in list(staging.rglob("*")):
        if path.is_file() and path.relative_to(staging).as_posix() not in wanted:
            path.unlink()
