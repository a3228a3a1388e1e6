"""Keeps the children of `corral up` alive until somebody asks it to stop.

One thread, one loop: it sleeps on a socket that every signal writes to.
"""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import typer

from corral.errors import CorralError, Unavailable
from corral.log_line import said_in
from corral.process.keep_alive import Child, ChildPlan
from corral.process.log_file import rotate


def describe(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


TICK_S, READY_TICK_S, TAIL_TICK_S = 1.0, 0.03, 0.2
LOG_LIMIT_BYTES = 10 * 1024 * 1024
UNREACHABLE = 3
# A part that is slow to start says why, in its log; show that after a while.
PATIENCE_S = 3.0


class Interrupted(Exception):
    """Somebody asked to stop while the start was still going on."""


class SignalWatch:
    """Wakes the loop when a signal arrives; remembers requests to stop."""

    def __init__(self, stop_file: Path) -> None:
        self.requests = 0
        self._stop_file = stop_file
        self._ear, self._mouth = socket.socketpair()
        self._ear.setblocking(False)
        self._mouth.setblocking(False)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take over the signals for the length of a block."""
        self._stop_file.unlink(missing_ok=True)
        names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
        numbers = [getattr(signal, n) for n in names if hasattr(signal, n)]
        old = {n: signal.signal(n, self._on_stop) for n in numbers}
        if hasattr(signal, "SIGCHLD"):
            old[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda n, f: None)
        old_fd = signal.set_wakeup_fd(self._mouth.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(old_fd)
            for number, handler in old.items():
                signal.signal(number, handler)

    @property
    def is_stopping(self) -> bool:
        # Windows cannot send a polite signal to a process without a console.
        return self.requests > 0 or self._stop_file.exists()

    def wait(self, timeout_s: float) -> None:
        if select.select([self._ear], [], [], timeout_s)[0]:
            with contextlib.suppress(BlockingIOError):
                self._ear.recv(4096)

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self.requests += 1


class ChildSupervisor:
    """The children in the order they were started; they are stopped in reverse."""

    def __init__(
        self,
        bell: SignalWatch,
        logs: Path,
        on_change: Callable[[], None],
        *,
        is_verbose: bool = False,
    ) -> None:
        self.bell = bell
        self.children: list[Child] = []
        self._logs = logs
        self._on_change = on_change
        self._tails: dict[str, LogTail] | None = {} if is_verbose else None

    def add(self, plan: ChildPlan) -> Child:
        """Start a child and look after it from now on."""
        child = Child(plan, self._logs / f"{plan.name}.log")
        self.children.append(child)
        if self._tails is not None:
            self._tails[plan.name] = LogTail(child.log)
        child.start()
        self._on_change()
        return child

    def await_ready(
        self, child: Child, timeout_s: float, *, deaths_allowed: int = 0
    ) -> None:
        """Wait until a child answers, keeping the others alive meanwhile.

        Raises:
            Unavailable: it ended with 3: something outside does not answer.
            CorralError: it ended otherwise, or was not ready in time.
            Interrupted: a request to stop came first.
        """
        begun = time.monotonic()
        speak_at = begun + PATIENCE_S
        while not (child.process and child.plan.is_ready()):
            if self.bell.is_stopping:
                raise Interrupted
            self.tick()
            now = time.monotonic()
            if child.deaths > deaths_allowed or now - begun > timeout_s:
                raise _failure(child)
            if now > speak_at:
                speak_at = now + PATIENCE_S
                words = said_in(child.last_words()) or "no word yet"
                typer.echo(f"still starting the {child.name}: {words}", err=True)
            self.bell.wait(READY_TICK_S)

    def run(self) -> None:
        """Keep everything alive until a request to stop."""
        while not self.bell.is_stopping:
            for child in self.tick():
                _tell(child)
            pause = TICK_S if self._tails is None else TAIL_TICK_S
            due = [c.next_start_s for c in self.children if c.next_start_s is not None]
            self.bell.wait(min([pause, *due]))

    def stop(self) -> None:
        for child in reversed(self.children):
            child.stop()
        self._show_tails()

    def tick(self) -> list[Child]:
        """Look after everybody once; those that ended or were started again."""
        changed = [child for child in self.children if child.tick()]
        if changed:
            self._on_change()
        for child in self.children:
            rotate(child.log, LOG_LIMIT_BYTES)
        self._show_tails()
        return changed

    def _show_tails(self) -> None:
        for name, tail in (self._tails or {}).items():
            for line in tail.read():
                sys.stderr.write(f"{name:>8} | {line}\n")


class LogTail:
    """What was added to a log file since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = path.stat().st_size if path.exists() else 0

    def read(self) -> list[str]:
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                self._at = self._at if self._at <= size else 0
                file.seek(self._at)
                fresh = file.read()
        except OSError:
            return []
        # A line still being written is left for the next look.
        end = fresh.rfind(b"\n") + 1
        self._at += end
        return fresh[:end].decode("utf-8", "replace").splitlines()


def _tell(child: Child) -> None:
    if child.process is not None:
        said = f"runs again, pid {child.process.popen.pid}"
    elif child.exit_status is not None:
        said = f"ended ({describe(child.exit_status)}); starting it again"
    else:
        said = f"cannot be started: {child.complaint}"
    typer.echo(f"{child.name} {said}", err=True)


def _failure(child: Child) -> CorralError:
    why = said_in(child.last_words())
    if not why and child.exit_status is not None:
        why = describe(child.exit_status)
    text = f"the {child.name} did not start: {why or 'it does not answer'}"
    text += f" (see {child.log})"
    return Unavailable(text) if child.exit_status == UNREACHABLE else CorralError(text)
