"""Starts, stops and recognises processes, and the shape of a store that is one.

A process is recognised by pid and start time together, because pids are used again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from corral.errors import EmbeddedError

_TETHER = Path(__file__).with_name("die_with_parent.py")
# A clock that is set right after boot shifts the start times psutil computes.
_START_SLACK_S = 2.0
STOP_S = 10.0
# Windows has neither; there `terminate` is all a parent can do.
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
_KEPT_VARIABLES = ("PATH", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. `prefix` (a change of user) comes before the tether.

    `death_signal` is what the process gets when its parent dies; Linux drops that
    wish when the user changes, hence the order.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    prefix: tuple[str, ...] = ()
    cwd: Path | None = None
    death_signal: int = KILL


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, for all time: its pid and when it started (epoch seconds)."""

    pid: int
    started: float


@dataclass(slots=True)
class Process:
    """A child of this process and what it wrote since it started."""

    popen: subprocess.Popen[bytes]
    log: Path
    log_from: int
    mark: ProcessIdentity | None = field(default=None)


def launch(command: Command, log: Path) -> Process:
    """Start `command` in a session of its own, its output appended to `log`.

    Raises:
        OSError: when the program cannot be started at all.
    """
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        offset = os.fstat(fd).st_size
        popen = subprocess.Popen(
            [*command.prefix, *tethered(command.argv, command.death_signal)],
            env=dict(command.env),
            cwd=command.cwd,
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            # Ctrl-C in the terminal is for the parent, which stops them in order.
            start_new_session=True,
        )
    finally:
        os.close(fd)
    return Process(popen, log, offset, mark(popen.pid))


def bare_environment() -> dict[str, str]:
    """For servers: no locale, PG* variable or secret of the user reaches them."""
    kept = {n: os.environ[n] for n in _KEPT_VARIABLES if n in os.environ}
    return {**kept, "LC_ALL": "C"}


def tethered(argv: tuple[str, ...], death_signal: int) -> list[str]:
    """`argv`, made to die with this process where the system can do that."""
    if sys.platform != "linux":
        return list(argv)
    start = [sys.executable, "-I", "-S", "-B", str(_TETHER)]
    return [*start, str(os.getpid()), str(int(death_signal)), *argv]


def ask_to_stop(process: Process, number: int, timeout_s: float) -> int | None:
    """Send signal `number` and wait; None when it still runs after `timeout_s`."""
    if process.popen.poll() is None:
        process.popen.send_signal(number)
    try:
        return process.popen.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None


def stop(process: Process, number: int, timeout_s: float) -> int:
    """Ask with signal `number`, kill after `timeout_s`; returns the exit status."""
    status = ask_to_stop(process, number, timeout_s)
    if status is None:
        kill_group(process.popen)
        status = process.popen.wait()
    return status


def kill_group(popen: subprocess.Popen[bytes]) -> None:
    """Kill a child and whatever still runs in its session's first group."""
    if sys.platform == "win32":
        popen.kill()
        return
    try:
        os.killpg(popen.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        popen.kill()


def mark(pid: int) -> ProcessIdentity | None:
    try:
        return ProcessIdentity(pid, psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def is_alive(known: ProcessIdentity) -> bool:
    """Does exactly this process still run? A zombie does not."""
    try:
        process = psutil.Process(known.pid)
        if abs(process.create_time() - known.started) > _START_SLACK_S:
            return False
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def end(known: ProcessIdentity, number: int, timeout_s: float) -> bool:
    """Stop a process that is not our child; true when it is gone."""
    if not is_alive(known):
        return True
    try:
        process = psutil.Process(known.pid)
        process.send_signal(number)
        try:
            process.wait(timeout_s)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(timeout_s)
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False
    return True


def last_line(process: Process) -> str:
    """The last thing a process said since it started; empty when it said nothing."""
    try:
        with process.log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(min(process.log_from, size), size - 8192))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


class StoreServer(Protocol):
    """A store that runs as a child process of the parent."""

    @property
    def name(self) -> str: ...

    @property
    def url(self) -> str:
        """How clients reach it, password included."""

    @property
    def stop_signal(self) -> int:
        """Asks it to stop soon and cleanly."""

    @property
    def warning(self) -> str | None:
        """What the user should know about the choice that was made."""

    def prepare(self, deaths: int) -> Command:
        """Make it ready to start; `deaths` is how often in a row it just died."""

    def is_ready(self) -> bool: ...


@contextmanager
def running(server: StoreServer, log: Path, timeout_s: float = 30.0) -> Iterator[None]:
    """Run `server` for the length of a block, without supervision.

    Raises:
        EmbeddedError: when it ends or does not answer in time.
    """
    process = launch(server.prepare(0), log)
    try:
        give_up_at = time.monotonic() + timeout_s
        while not server.is_ready():
            if process.popen.poll() is not None or time.monotonic() > give_up_at:
                raise EmbeddedError(
                    f"{server.name} did not start: {last_line(process) or 'no word'}"
                )
            time.sleep(0.02)
        yield
    finally:
        stop(process, server.stop_signal, STOP_S)
