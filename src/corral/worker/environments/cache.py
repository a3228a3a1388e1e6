"""What a node has fetched and built, each thing once, found again by its content.

Any number of threads and processes share a folder: who builds holds an exclusive lock,
who uses a shared one, and eviction takes only what nobody holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from corral.errors import EnvironmentFailed
from corral.worker.environments import folder as folders
from corral.worker.environments.lock import FileLock, acquire, attempt
from corral.worker.environments.tool import end_strays

log = logging.getLogger(__name__)

Kind = Literal["git", "tree", "venv", "uv"]
KINDS: tuple[Kind, ...] = ("git", "tree", "venv", "uv")
COUNTERS = ("clones", "fetches", "unpacks", "builds", "hits", "evictions")
# Nobody holds them for longer than a small write takes.
_COUNTING_S = 60.0


def key_of(*parts: str) -> str:
    """A name for content that is told by these texts."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape")
        digest.update(b"%d:%b" % (len(data), data))
    # Half of it: paths within a venv stand in the first line of its scripts.
    return digest.hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class CacheDraft:
    """A place to build at; what is there is there unless the entry `is_new`."""

    path: Path
    is_new: bool


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """Something in the cache that stays there until it is released."""

    path: Path
    key: str
    was_built: bool
    _lock: FileLock

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> CacheEntry:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@dataclass(frozen=True, slots=True)
class Cache:
    """A folder of entries, `KIND/KEY/content`; whole when `KIND/KEY/done` is there.

    Entries stay where they are built: a virtual environment cannot be moved.
    """

    folder: Path
    limit_bytes: int

    def hold(
        self,
        kind: Kind,
        key: str,
        build: Callable[[CacheDraft], None],
        *,
        timeout_s: float,
        is_usable: Callable[[Path], bool] = lambda _: True,
    ) -> CacheEntry:
        """The entry, built by `build` if it is not there or not usable any more.

        Raises:
            EnvironmentFailed: somebody else has been building it for `timeout_s`.
                Whatever `build` raises passes, and leaves no entry.
        """
        was_built = False
        place = self._place(kind, key)
        while True:
            lock = self._lock(kind, key, shared=True, timeout_s=timeout_s)
            if _is_whole(place) and is_usable(place / "content"):
                break
            lock.release()
            with self._changed(kind, key, timeout_s, is_usable) as draft:
                if draft.is_new:
                    build(draft)
                    was_built = True
        try:
            # The time of the last use, which eviction goes by.
            os.utime(place / "done")
            if was_built:
                self.evict()
            else:
                self.count("hits")
        except BaseException:
            lock.release()
            raise
        return CacheEntry(place / "content", key, was_built, lock)

    @contextmanager
    def change(self, kind: Kind, key: str, *, timeout_s: float) -> Iterator[CacheDraft]:
        """Have an entry for oneself to add to; it may not be there yet.

        A failure takes back an entry that was not there before, and keeps the others.
        """
        with self._changed(kind, key, timeout_s, lambda _: True) as draft:
            yield draft
        self.evict()

    @contextmanager
    def _changed(
        self, kind: Kind, key: str, timeout_s: float, is_usable: Callable[[Path], bool]
    ) -> Iterator[CacheDraft]:
        place = self._place(kind, key)
        lock = self._lock(kind, key, shared=False, timeout_s=timeout_s)
        is_new = True
        try:
            if (place / "busy").exists():
                # The last to be here was killed, but what it started may live on.
                end_strays(str(place / "content"))
            is_new = not (_is_whole(place) and is_usable(place / "content"))
            if is_new:
                _clear(place)
                place.mkdir(parents=True)
            (place / "busy").touch()
            try:
                yield CacheDraft(place / "content", is_new)
            finally:
                # Builds run strangers' code, which may have left a daemon.
                end_strays(str(place / "content"))
            _mark(place)
            (place / "busy").unlink()
        except BaseException:
            (place / "busy").unlink(missing_ok=True)
            if is_new:
                _clear(place)
                lock.forget()
            raise
        finally:
            lock.release()

    def measure(self, kind: Kind, key: str) -> None:
        """Look again how large an entry is that its users let grow."""
        place = self._place(kind, key)
        with contextlib.suppress(FileNotFoundError):
            size = folders.measure(place / "content")
            with self._counting():
                _write(place / "done", {"bytes": size})

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder of one's own that is gone afterwards, also when we are killed."""
        name = secrets.token_hex(6)
        place = self.folder / "work" / name
        # Nobody else knows the name, but a sweep may take the lock for a forgotten one.
        path = self._lock_path("work", name)
        lock = acquire(path, shared=False, timeout_s=_COUNTING_S)
        try:
            place.mkdir(parents=True, mode=0o700)
            yield place
        finally:
            self._discard(place, lock)

    def sweep(self) -> None:
        """Remove what the dead have left: folders, half-built entries, locks."""
        for place in _children(self.folder / "work"):
            lock = attempt(self._lock_path("work", place.name), shared=False)
            if lock is not None:
                end_strays(str(place))
                self._discard(place, lock)
        for kind in KINDS:
            for place in _children(self.folder / kind):
                if (place / "busy").exists() or not _is_whole(place):
                    self._mend(kind, place)
        for path in _children(self.folder / "locks"):
            if not self._locked(path).exists():
                self._forget(path)

    def _mend(self, kind: Kind, place: Path) -> None:
        """Somebody was killed at work on it, unless somebody is at work on it now."""
        lock = attempt(self._lock_path(kind, place.name), shared=False)
        if lock is None:
            return
        if (place / "busy").exists():
            end_strays(str(place / "content"))
        if _is_whole(place):
            (place / "busy").unlink(missing_ok=True)
            lock.release()
        else:
            self._discard(place, lock)

    def _forget(self, path: Path) -> None:
        """A lock on nothing; who waits for it finds out, and makes another."""
        if (lock := attempt(path, shared=False)) is not None:
            if not self._locked(path).exists():
                lock.forget()
            lock.release()

    def _locked(self, path: Path) -> Path:
        """What a lock is on; the one on the counters stays."""
        kind, _, name = path.name.partition(".")
        return path if kind == "counters" else self.folder / kind / name

    def evict(self) -> None:
        """Remove what was left half-built, and the least recently used above the limit.

        What somebody holds stays, however far above the limit that is.
        """
        found = []
        for kind in KINDS:
            for place in _children(self.folder / kind):
                facts = _facts(place)
                if facts is None:
                    self._drop(kind, place.name)
                else:
                    found.append((*facts, kind, place.name))
        total = sum(size for _, size, _, _ in found)
        for _, size, kind, key in sorted(found):
            if total <= self.limit_bytes:
                return
            if self._drop(kind, key):
                total -= size
                self.count("evictions")

    def size_bytes(self) -> int:
        """What all entries take on disk."""
        places = [p for kind in KINDS for p in _children(self.folder / kind)]
        return sum(facts[1] for place in places if (facts := _facts(place)))

    def counters(self) -> dict[str, int]:
        """How often things were done with this folder, by anybody, ever."""
        known = self._read_counters()
        return {name: known.get(name, 0) for name in COUNTERS}

    def count(self, name: str) -> None:
        with self._counting():
            known = self._read_counters()
            _write(
                self.folder / "counters.json", {**known, name: known.get(name, 0) + 1}
            )

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """For small writes that any number of us may be about to make."""
        path = self._lock_path("counters", "all")
        lock = acquire(path, shared=False, timeout_s=_COUNTING_S)
        try:
            yield
        finally:
            lock.release()

    def _read_counters(self) -> dict[str, int]:
        try:
            known = json.loads((self.folder / "counters.json").read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}

    def _drop(self, kind: Kind, key: str) -> bool:
        lock = attempt(self._lock_path(kind, key), shared=False)
        if lock is None:
            return False
        place = self._place(kind, key)
        if (place / "busy").exists():
            end_strays(str(place / "content"))
        return self._discard(place, lock)

    def _discard(self, place: Path, lock: FileLock) -> bool:
        """Remove what is locked; what cannot be removed now is tried again later."""
        try:
            _clear(place)
            lock.forget()
        except OSError as error:
            log.warning("%s cannot be removed: %s", place, error)
            return False
        finally:
            lock.release()
        return True

    def _lock(
        self, kind: Kind, key: str, *, shared: bool, timeout_s: float
    ) -> FileLock:
        path = self._lock_path(kind, key)
        try:
            return acquire(path, shared=shared, timeout_s=timeout_s)
        except TimeoutError as error:
            raise EnvironmentFailed(
                f"another process has been making this {kind} for {timeout_s:g} s"
            ) from error

    def _place(self, kind: Kind, key: str) -> Path:
        return self.folder / kind / key

    def _lock_path(self, kind: str, key: str) -> Path:
        return self.folder / "locks" / f"{kind}.{key}"


def _children(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def _is_whole(place: Path) -> bool:
    return (place / "done").exists() and (place / "content").exists()


def _facts(place: Path) -> tuple[int, int] | None:
    """Last use and size; None for an entry that is not whole."""
    try:
        used = (place / "done").stat().st_mtime_ns
        return used, int(json.loads((place / "done").read_bytes())["bytes"])
    except (FileNotFoundError, ValueError, KeyError):
        return None


def _mark(place: Path) -> None:
    _write(place / "done", {"bytes": folders.measure(place / "content")})


def _clear(place: Path) -> None:
    # The mark first: what is half removed must not be taken for whole.
    (place / "done").unlink(missing_ok=True)
    folders.remove(place)


def _write(path: Path, value: Any) -> None:
    """Replace a file in one step; only one may do so at a time.

    A name that is always the same: who is killed here leaves one file, not many.
    """
    half = path.with_name(f".{path.name}")
    try:
        half.write_text(json.dumps(value), encoding="ascii")
        half.replace(path)
    except BaseException:
        half.unlink(missing_ok=True)
        raise
