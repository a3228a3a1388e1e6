"""The seam to the operating system: start, stop, kill and recognise processes.

Everything that differs between POSIX and Windows on a node stands here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from corral.errors import AlreadyRunning

# Every descendant of a worker inherits this variable, so that it is found again
# wherever it moved to: another process group, another session, another parent.
MARK = "CORRAL_AGENT_MARK"
# The word in the command line of what removes a dead worker's containers.
CLEARING = "corral.worker.container.guardian"
# A clock that is set right after boot shifts the start times psutil computes; a pid
# that is used again is off by far more.
_START_SLACK_S = 2.0
# Windows cannot read what another process has locked, so the lock lies beyond the text.
_LOCK_OFFSET = 1 << 30
Spawned = subprocess.Popen[bytes]


def spawn(
    argv: Sequence[str],
    mark: str,
    log: IO[bytes],
    variables: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Spawned:
    """Start `argv` apart from our terminal and signals, marked with `mark`.

    `environment` is what it inherits, our own where nothing is said; `variables` are
    its own beside that.
    """
    inherited = os.environ if environment is None else environment
    flags = 0
    if sys.platform == "win32":
        flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
    return subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env={**child_environment(inherited, mark), **(variables or {})},
        start_new_session=True,
        creationflags=flags,
    )


def child_environment(ours: Mapping[str, str], mark: str) -> dict[str, str]:
    """Our environment without our secrets, with the mark."""
    # Late: settings are slow to load, and `corral up` starts fast.
    from corral.settings import secret_variables

    secrets = secret_variables()
    kept = {name: value for name, value in ours.items() if name not in secrets}
    return {**kept, MARK: mark}


def ask_to_stop(process: Spawned) -> None:
    """The polite signal, to the supervisor alone: its runners are its own affair."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.send_signal(signal.CTRL_BREAK_EVENT)
        else:
            process.terminate()


def kill_family(process: Spawned, mark: str) -> None:
    """End a worker and everything it started, whatever group that is in."""
    kin = _kin(process.pid) if process.poll() is None else []
    # The supervisor first: it must not answer a dead runner with a new one. It is
    # waited for here, since only its own handle may learn its exit code.
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=2.0)
    _kill_all(kin)
    kill_marked([mark])


def kill_marked(marks: Collection[str], variable: str = MARK) -> int:
    """End every process of ours that carries one of `marks`; how many there were."""
    ended = 0
    # A process may fork while we look: look again until a round finds nobody.
    for _ in range(10):
        found = list(marked(marks, variable))
        if not found:
            break
        _kill_all(found)
        _await_end(found, timeout_s=2.0)
        ended += len(found)
    return ended


def marked(marks: Collection[str], variable: str = MARK) -> Iterator[psutil.Process]:
    """Living processes that carry one of `marks`, never the caller itself."""
    wanted = set(marks)
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(variable) in wanted and _is_alive(process):
                yield process


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, for all time: its pid and when it started (epoch seconds)."""

    pid: int
    started: float


def identity_of(pid: int) -> ProcessIdentity | None:
    try:
        return ProcessIdentity(pid, psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def is_alive(known: ProcessIdentity) -> bool:
    """Does exactly this process still run? A zombie does not."""
    process = _find(known)
    return process is not None and _is_alive(process)


def end(known: ProcessIdentity, number: int, timeout_s: float) -> bool:
    """Stop a process that is not our child; true when it is gone."""
    process = _find(known)
    if process is None or not _is_alive(process):
        return True
    try:
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


def kill_recorded(known: ProcessIdentity) -> None:
    """End a process that is not our child, and its descendants."""
    if process := _find(known):
        _kill_all([process, *_kin(known.pid)])


def _find(known: ProcessIdentity) -> psutil.Process | None:
    """The process itself, never another that was given its pid since."""
    try:
        process = psutil.Process(known.pid)
        is_it = abs(process.create_time() - known.started) <= _START_SLACK_S
        return process if is_it else None
    except psutil.Error:
        return None


def _kin(pid: int) -> list[psutil.Process]:
    """All descendants, but for those that clear up after the others and then go."""
    found: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children():
            if not _clears_up(child):
                found += [child, *_kin(child.pid)]
    return found


def _clears_up(process: psutil.Process) -> bool:
    try:
        return CLEARING in process.cmdline()
    except psutil.Error:
        return False


def memory_mb(pid: int | None) -> float | None:
    """What a process and its descendants hold in memory."""
    if pid is None:
        return None
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return None
    total = 0
    for member in family:
        with contextlib.suppress(psutil.Error):
            total += member.memory_info().rss
    return round(total / 2**20, 1)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _await_end(processes: Sequence[psutil.Process], timeout_s: float) -> None:
    # Not psutil's own wait: where nobody collects orphans, as in many containers,
    # their zombies would keep it until its timeout.
    give_up_at = time.monotonic() + timeout_s
    while any(map(_is_alive, processes)) and time.monotonic() < give_up_at:
        time.sleep(0.01)


def _kill_all(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def lock_folder(folder: Path) -> IO[bytes]:
    """Hold `folder` for this process alone, until the returned file is closed.

    Raises:
        AlreadyRunning: when another process holds it.
    """
    file = (folder / "lock").open("ab")
    try:
        lock_file(file.fileno())
    except OSError as error:
        file.close()
        raise AlreadyRunning(f"another agent is using {folder}") from error
    return file


def lock_file(fd: int) -> None:
    """Hold an open file for this process alone; the system lets go when it dies.

    Raises:
        OSError: another process holds it.
    """
    if sys.platform == "win32":
        import msvcrt

        os.lseek(fd, _LOCK_OFFSET, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(fd, 0, os.SEEK_SET)
        return
    import fcntl

    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
