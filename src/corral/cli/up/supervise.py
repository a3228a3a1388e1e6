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
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import typer

from corral.embedded.process import (
    Command,
    Process,
    ProcessIdentity,
    ask_to_stop,
    kill_group,
    last_line,
    launch,
    stop,
)
from corral.errors import CorralError, Unavailable
from corral.process.backoff import Backoff
from corral.process.log_file import rotate

# How soon a child that died is started again, and how late at most.
FIRST_DELAY_S, LONGEST_DELAY_S = 0.1, 15.0
# Alive for so long, a child's earlier deaths no longer count.
HEALTHY_S = 30.0


@dataclass(frozen=True, slots=True)
class ChildPlan:
    """How to run one child.

    `prepare` gets the number of deaths in a row and is called before every start;
    what it raises counts as a death. `hurry_s` after the first request to stop comes
    a second one, for a child that would rather finish what it is at.
    """

    name: str
    prepare: Callable[[int], Command]
    is_ready: Callable[[], bool] = lambda: True
    stop_signal: int = signal.SIGTERM
    stop_s: float = 5.0
    hurry_s: float | None = None


@dataclass(slots=True)
class Child:
    """The process of a plan, over all its restarts."""

    plan: ChildPlan
    log: Path
    process: Process | None = None
    restarts: int = 0
    complaint: str = ""
    exit_status: int | None = None
    _backoff: Backoff = field(
        default_factory=lambda: Backoff(FIRST_DELAY_S, LONGEST_DELAY_S)
    )
    _started_at: float = 0.0
    _start_at: float = 0.0

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def deaths(self) -> int:
        """How often in a row it died without having been healthy in between."""
        return self._backoff.failures

    @property
    def mark(self) -> ProcessIdentity | None:
        return self.process.mark if self.process else None

    @property
    def next_start_s(self) -> float | None:
        """Seconds until it is to be started again; None while it runs."""
        return None if self.process else max(self._start_at - time.monotonic(), 0.0)

    def tick(self) -> bool:
        """Notice a death, start when it is time; true when something changed."""
        if self.process is not None:
            return self._notice_death(self.process)
        if time.monotonic() < self._start_at:
            return False
        self.start()
        return True

    def start(self) -> None:
        try:
            self.process = launch(self.plan.prepare(self.deaths), self.log)
        except (CorralError, OSError) as error:
            self.exit_status = None
            self._fail(error.message if isinstance(error, CorralError) else str(error))
            return
        self._started_at = time.monotonic()

    def stop(self) -> None:
        """Ask, ask again, kill."""
        if self.process is None:
            return
        number, hurry_s = self.plan.stop_signal, self.plan.hurry_s
        if hurry_s is None or ask_to_stop(self.process, number, hurry_s) is None:
            stop(self.process, number, self.plan.stop_s)
        self.process = None

    def last_words(self) -> str:
        return last_line(self.process) if self.process else self.complaint

    def _notice_death(self, process: Process) -> bool:
        status = process.popen.poll()
        if status is None:
            return False
        # What it started must not go on beside its successor.
        kill_group(process.popen)
        self.exit_status, self.process = status, None
        if time.monotonic() - self._started_at > HEALTHY_S:
            self._backoff.reset()
        self.restarts += 1
        self._fail(last_line(process))
        return True

    def _fail(self, complaint: str) -> None:
        self.complaint = complaint
        self._start_at = time.monotonic() + self._backoff.next_s()


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
                words = plain(child.last_words()) or "no word yet"
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


def plain(line: str) -> str:
    """The message of a log line that may be JSON."""
    import json

    try:
        told = json.loads(line)
        return str(told.get("event") or told.get("message") or line)
    except (ValueError, AttributeError):
        return line


def _tell(child: Child) -> None:
    if child.process is not None:
        said = f"runs again, pid {child.process.popen.pid}"
    elif child.exit_status is not None:
        said = f"ended ({describe(child.exit_status)}); starting it again"
    else:
        said = f"cannot be started: {child.complaint}"
    typer.echo(f"{child.name} {said}", err=True)


def _failure(child: Child) -> CorralError:
    why = plain(child.last_words())
    if not why and child.exit_status is not None:
        why = describe(child.exit_status)
    text = f"the {child.name} did not start: {why or 'it does not answer'}"
    text += f" (see {child.log})"
    return Unavailable(text) if child.exit_status == UNREACHABLE else CorralError(text)
