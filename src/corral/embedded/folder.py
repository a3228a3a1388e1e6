"""The data folder of one Corral: its layout, its lock, its secrets, its state file.

Whoever holds the lock is the one parent on this folder; everybody else only reads.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import stat
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from corral.errors import AlreadyRunning, EmbeddedError
from corral.process.spawn import ProcessIdentity, is_alive, lock_file

LOCK, STATE = "lock", "state.json"
# sun_path holds 104 bytes on macOS and 108 on Linux; the longest name we put in the
# folder is `.s.PGSQL.5432`. Other characters would need quoting in URLs.
_SOCKET_FOLDER_LIMIT = 85
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/._-]+")


@dataclass(frozen=True, slots=True)
class Folder:
    """The paths below CORRAL_HOME. `make` creates them, open to their user alone."""

    home: Path

    @property
    def postgres(self) -> Path:
        return self.home / "postgres"

    @property
    def redis(self) -> Path:
        return self.home / "redis"

    @property
    def secrets(self) -> Path:
        return self.home / "secrets"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def run(self) -> Path:
        return self.home / "run"

    @property
    def agents(self) -> Path:
        return self.home / "agents"

    @property
    def admin_key(self) -> Path:
        return self.home / "admin.key"

    def make(self) -> None:
        """Create what is missing.

        Raises:
            EmbeddedError: when the folder cannot be used, or not safely.
        """
        try:
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._close_home()
            for part in self._parts():
                part.mkdir(mode=0o700, exist_ok=True)
                part.chmod(0o700)
        except OSError as error:
            raise EmbeddedError(
                f"the data folder {self.home} cannot be used: {error.strerror}"
            ) from error

    def _parts(self) -> tuple[Path, ...]:
        stores = (self.postgres, self.redis, self.secrets)
        return (*stores, self.logs, self.run, self.agents)

    def _close_home(self) -> None:
        """Shut others out of our own folder; never change a foreign one."""
        if sys.platform == "win32":
            return
        ours = (self.home / LOCK).exists() or not any(self.home.iterdir())
        status = self.home.stat()
        if ours and status.st_uid == os.geteuid():
            self.home.chmod(0o700)
        elif status.st_mode & stat.S_IWOTH or status.st_uid != os.geteuid():
            raise EmbeddedError(
                f"the data folder {self.home} belongs to another user or can be"
                " written by others: choose an empty folder with --home"
            )

    def secret(self, name: str) -> str:
        """The generated password called `name`; made on first use."""
        path = self.secrets / f"{name}.password"
        try:
            return path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            value = secrets.token_hex(24)
            write_private(path, value)
            return value

    def has_secret(self, name: str) -> bool:
        return (self.secrets / f"{name}.password").exists()

    def socket_folder(self) -> Path:
        """A folder for unix sockets whose path is short and plain enough."""
        if len(os.fsencode(self.run)) <= _SOCKET_FOLDER_LIMIT and _PLAIN_PATH.fullmatch(
            str(self.run)
        ):
            return self.run
        known = self._sockets_elsewhere()
        if known is not None and _is_private(known):
            return known
        made = Path(tempfile.mkdtemp(prefix="corral-", dir=_short_temp()))
        write_private(self.run / "sockets", str(made))
        return made

    def drop_sockets(self) -> None:
        """After a clean stop: leave nothing outside of the data folder."""
        known = self._sockets_elsewhere()
        if known is None:
            return
        with contextlib.suppress(OSError):
            known.rmdir()
        (self.run / "sockets").unlink(missing_ok=True)

    def _sockets_elsewhere(self) -> Path | None:
        try:
            return Path((self.run / "sockets").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None


def _short_temp() -> str:
    temp = tempfile.gettempdir()
    fits = len(temp) <= _SOCKET_FOLDER_LIMIT - 20 and _PLAIN_PATH.fullmatch(temp)
    return temp if fits else "/tmp"


def _is_private(path: Path) -> bool:
    """Is it a folder (no link) of this user that nobody else can enter?"""
    try:
        status = path.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not status.st_mode & 0o077
    )


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step; nobody but its owner can ever read it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


@dataclass(slots=True)
class FolderLock:
    """Exclusive use of a folder. The system drops it when the holder dies."""

    folder: Folder
    _fd: int | None = field(default=None, repr=False)

    def take(self) -> None:
        """Raises AlreadyRunning when another process has it."""
        fd = os.open(self.folder.home / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            lock_file(fd)
        except OSError:
            pid = os.read(fd, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise AlreadyRunning(
                f"Corral already runs on {self.folder.home} (pid {pid}): stop it with"
                " `corral down`, or give another folder with --home",
                home=str(self.folder.home),
                pid=int(pid) if pid.isdecimal() else None,
            ) from None
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        os.write(fd, str(os.getpid()).encode())
        self._fd = fd

    def release(self) -> None:
        """Let go; the file stays, since removing it would race with the next taker."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None


@dataclass(frozen=True, slots=True)
class FolderState:
    """What runs on a folder, for `corral down`, `status` and the next start.

    `parent` is the `corral up` process; `url` is the manager's, `certificate` the
    file with what it shows there when that is https.
    """

    parent: ProcessIdentity
    url: str
    version: str
    ready: bool = False
    children: Mapping[str, ProcessIdentity] = field(default_factory=dict)
    certificate: str | None = None

    @property
    def is_running(self) -> bool:
        return is_alive(self.parent)


def save_state(folder: Folder, state: FolderState) -> None:
    write_private(folder.home / STATE, json.dumps(asdict(state), indent=1))


def load_state(folder: Folder) -> FolderState | None:
    """The state left by the last parent, running or not; None when there is none."""
    try:
        told: dict[str, Any] = json.loads((folder.home / STATE).read_text("utf-8"))
        children = {
            name: ProcessIdentity(**mark) for name, mark in told["children"].items()
        }
        return FolderState(
            ProcessIdentity(**told["parent"]),
            str(told["url"]),
            str(told["version"]),
            bool(told["ready"]),
            children,
            told.get("certificate"),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def clear_state(folder: Folder) -> None:
    (folder.home / STATE).unlink(missing_ok=True)
