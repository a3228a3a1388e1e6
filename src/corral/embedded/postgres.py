"""A PostgreSQL of our own in the data folder: made once, configured at every start.

It listens on a unix socket only this user can reach (on Windows: a loopback port),
asks for a generated password, and never loses a commit: fsync stays on.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from corral.embedded.binaries import PostgresBinaries, find_postgres
from corral.embedded.folder import Folder, write_private
from corral.embedded.privilege import drop_root
from corral.embedded.server import Address, free_port, postgres_answers
from corral.errors import EmbeddedError
from corral.process.keep_alive import Command, bare_environment
from corral.process.spawn import ProcessIdentity, end, identity_of

USER = DATABASE = "corral"
_PORT = 5432
_TOOL_TIMEOUT_S = 120.0
_ORPHAN_S = 10.0
# Fast shutdown: open connections are cut, the data are written out.
STOP_SIGNAL = signal.SIGINT

_SETTINGS = {
    "unix_socket_permissions": "0700",
    "password_encryption": "scram-sha-256",
    "max_connections": "60",
    "shared_buffers": "128MB",
    "work_mem": "8MB",
    "maintenance_work_mem": "64MB",
    "max_wal_size": "1GB",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    # Short statements on arrays: compiling or sharing them out costs more than it
    # saves, and /dev/shm is small in containers.
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "huge_pages": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "log_checkpoints": "off",
    "logging_collector": "off",
}


@dataclass(frozen=True, slots=True)
class Postgres:
    """One embedded server. `sockets` is None where it listens on a port instead."""

    folder: Folder
    binaries: PostgresBinaries
    password: str = field(repr=False)
    sockets: Path | None
    port: int = _PORT

    @property
    def name(self) -> str:
        return "postgres"

    @property
    def url(self) -> str:
        if self.sockets is None:
            place = f"127.0.0.1:{self.port}/{DATABASE}"
        else:
            place = f"/{DATABASE}?host={self.sockets}"
        return f"postgresql://{USER}:{self.password}@{place}"

    @property
    def stop_signal(self) -> int:
        return STOP_SIGNAL

    @property
    def warning(self) -> str | None:
        return None

    @property
    def data(self) -> Path:
        return self.folder.postgres / "data"

    @property
    def config(self) -> Path:
        return self.folder.postgres / "postgresql.conf"

    def is_ready(self) -> bool:
        place: Address = ("127.0.0.1", self.port)
        if self.sockets is not None:
            place = self.sockets / f".s.PGSQL.{self.port}"
        return postgres_answers(place, USER, DATABASE)

    def prepare(self, deaths: int) -> Command:
        """Clear what a killed server left behind; `deaths` changes nothing here."""
        prefix = drop_root(self.data)
        _clear_remains(self.data, self.sockets)
        argv = (
            self.binaries.path("postgres"),
            "-D",
            str(self.data),
            "-c",
            f"config_file={self.config}",
        )
        return Command(
            argv, bare_environment(), prefix, self.folder.postgres, STOP_SIGNAL
        )


def open_postgres(folder: Folder, *, tcp: bool = sys.platform == "win32") -> Postgres:
    """Find the programs, make the database where there is none, write the settings.

    The caller holds the folder's lock.

    Raises:
        EmbeddedError: when there is no PostgreSQL, or it cannot make its data.
    """
    data = folder.postgres / "data"
    binaries = find_postgres(_major_of(data))
    is_new_password = not folder.has_secret("postgres")
    server = Postgres(
        folder,
        binaries,
        folder.secret("postgres"),
        None if tcp else folder.socket_folder(),
        free_port() if tcp else _PORT,
    )
    if not data.exists():
        _create(server)
    elif is_new_password:
        _clear_remains(data, server.sockets)
        change = f"ALTER ROLE {USER} PASSWORD '{server.password}';"
        _single_user(server, drop_root(data), data, change)
    write_private(server.config, _write_settings(server))
    return server


def _major_of(data: Path) -> int | None:
    try:
        return int((data / "PG_VERSION").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _create(server: Postgres) -> None:
    """Make the cluster beside its place and move it there when it is complete."""
    fresh = server.data.with_name("data.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    prefix = drop_root(fresh)
    password_file = server.folder.secrets / "postgres.password"
    _run_tool(
        [
            *prefix,
            server.binaries.path("initdb"),
            f"--pgdata={fresh}",
            f"--username={USER}",
            "--auth=scram-sha-256",
            f"--pwfile={password_file}",
            "--encoding=UTF8",
            "--no-locale",
            "--data-checksums",
            "--no-instructions",
        ]
    )
    _single_user(server, prefix, fresh, f"CREATE DATABASE {DATABASE};")
    fresh.rename(server.data)


def _single_user(
    server: Postgres, prefix: tuple[str, ...], data: Path, statement: str
) -> None:
    """Run one statement with no server up; the statement goes by stdin, not argv."""
    program = server.binaries.path("postgres")
    heard = _run_tool(
        [*prefix, program, "--single", "-D", str(data), "postgres"], statement + "\n"
    )
    # This mode ends with 0 even when the statement failed.
    if "ERROR:" in heard or "FATAL:" in heard:
        raise EmbeddedError(f"PostgreSQL cannot prepare its data: {_complaint(heard)}")


def _run_tool(argv: list[str], given: str = "") -> str:
    try:
        done = subprocess.run(
            argv,
            input=given,
            capture_output=True,
            text=True,
            env=bare_environment(),
            timeout=_TOOL_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedError(f"PostgreSQL cannot make its data: {error}") from error
    if done.returncode != 0:
        raise EmbeddedError(
            f"PostgreSQL cannot make its data: {_complaint(done.stderr)}"
        )
    return done.stderr


def _complaint(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    loud = [line for line in lines if "error" in line.lower() or "FATAL" in line]
    return (loud or lines or ["it did not say why"])[-1]


def _write_settings(server: Postgres) -> str:
    settings = dict(_SETTINGS)
    settings["port"] = str(server.port)
    if server.sockets is None:
        settings |= {"listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
    else:
        sockets = str(server.sockets)
        settings |= {"listen_addresses": "", "unix_socket_directories": sockets}
    if server.binaries.major >= 18:
        # Three helper processes less on an idle machine.
        settings["io_method"] = "sync"
    lines = [f"{name} = '{value}'" for name, value in settings.items()]
    lines.insert(0, "# Written at every start: your own settings go into local.conf.")
    if server.config.with_name("local.conf").exists():
        lines.append("include 'local.conf'")
    return "\n".join(lines) + "\n"


def _clear_remains(data: Path, sockets: Path | None) -> None:
    """Make a start possible after a kill: we hold the lock, so nobody else runs here.

    PostgreSQL itself sees that a recorded pid is dead, but not that it now belongs
    to somebody else, which is common in containers.
    """
    note = data / "postmaster.pid"
    try:
        pid = int(note.read_text(encoding="ascii").split("\n", 1)[0])
    except (OSError, ValueError):
        pid = 0
    running = _server_on(pid, data)
    if running is not None:
        end(running, STOP_SIGNAL, _ORPHAN_S)
    elif pid and psutil.pid_exists(pid):
        note.unlink(missing_ok=True)
    if sockets is not None:
        for left in sockets.glob(".s.PGSQL.*"):
            left.unlink(missing_ok=True)


def _server_on(pid: int, data: Path) -> ProcessIdentity | None:
    """The process `pid`, when it is a PostgreSQL that works in `data`."""
    try:
        process = psutil.Process(pid)
        is_ours = "postgres" in process.name() and Path(process.cwd()) == data.resolve()
    except (psutil.Error, ValueError):
        return None
    return identity_of(pid) if is_ours else None
