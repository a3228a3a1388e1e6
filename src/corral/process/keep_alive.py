"""Keeps processes alive: starts one, watches it, starts it again, stops it.

`Restarts` is when the next life begins, `stop` how one is ended; `Child` is both in one
for whoever looks after several from a single thread. It knows no cluster, and imports
nothing heavy: every supervisor does.
"""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corral.core.backoff import Backoff
from corral.errors import CorralError
from corral.process import group
from corral.process.log_file import last_line

_TETHER = Path(__file__).with_name("die_with_parent.py")
# Windows has neither; there `terminate` is all a parent can do.
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
_KEPT_VARIABLES = ("PATH", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "LD_LIBRARY_PATH")
# How soon a child that died is started again, and how late at most.
_CHILD_RESTARTS = Backoff(0.1, 15.0)
# Alive for so long, a child's earlier deaths no longer count.
_STEADY_S = 30.0


@dataclass(slots=True)
class Tries:
    """How often something failed in a row; `reset` starts over."""

    backoff: Backoff
    failures: int = 0

    def next_s(self) -> float:
        """The pause before the next try, one failure later than before."""
        self.failures += 1
        # Never above the cap: it is a promise about how soon the next try comes.
        return self.backoff.delay_s(self.failures, random.random() / 2)

    def reset(self) -> None:
        self.failures = 0


@dataclass(slots=True)
class Restarts(Tries):
    """The lives of one process; `failures` are its deaths in a row.

    After a life of `steady_s` the deaths before it do not count any more.
    """

    steady_s: float = math.inf
    _began_at: float = 0.0

    def keep(self, live: Callable[[], float], wait: Callable[[float], bool]) -> None:
        """One life after another, in this thread.

        `live` lasts as long as the process and returns the pause after it; `wait` lets
        a pause go by and says whether another life begins. Linux ties a child that
        asked to die with its parent to the thread that started it: this one.
        """
        pause_s = 0.0
        while wait(pause_s):
            self.begin()
            pause_s = live()

    def begin(self) -> None:
        """A life begins, or at least the attempt."""
        self._began_at = time.monotonic()

    def end(self, *, was_good: bool = False) -> float:
        """It has died: the pause before the next life."""
        if was_good or time.monotonic() - self._began_at >= self.steady_s:
            self.reset()
        return self.next_s()


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


def python_command(module: str, *arguments: str) -> tuple[str, ...]:
    """A module of ours as a command, which imports nothing from the current folder.

    Without -P that folder is the first place Python looks in: whoever starts Corral
    beside a file called `http.py` or `json.py` would run that file.
    """
    return (sys.executable, "-P", "-m", module, *arguments)


@dataclass(frozen=True, slots=True)
class Process:
    """A child of this process and what it wrote since it started."""

    popen: subprocess.Popen[bytes]
    log: Path
    log_from: int

    def last_line(self) -> str:
        """The last thing it said since it started; empty when it said nothing."""
        return last_line(self.log, self.log_from)


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
    return Process(popen, log, offset)


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


def ask_to_stop(
    child: subprocess.Popen[Any], grace_s: float, number: int | None = signal.SIGTERM
) -> int | None:
    """Send signal `number` and wait; None when it still runs after `grace_s`.

    Without a signal it is only waited for: it was asked in another way.
    """
    if number is not None and child.poll() is None:
        child.send_signal(number)
    try:
        return child.wait(grace_s)
    except subprocess.TimeoutExpired:
        return None


def stop(
    child: subprocess.Popen[Any], grace_s: float, number: int | None = signal.SIGTERM
) -> int:
    """Ask it to end, kill it with its group after `grace_s`; its exit status."""
    status = ask_to_stop(child, grace_s, number)
    if status is None:
        kill(child)
        status = child.wait()
    return status


def kill(child: subprocess.Popen[Any]) -> None:
    """End a child, and what is in its group where it leads one."""
    group.kill_group(child.pid)
    child.kill()


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
    _lives: Restarts = field(
        default_factory=lambda: Restarts(_CHILD_RESTARTS, steady_s=_STEADY_S)
    )
    _start_at: float = 0.0

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def deaths(self) -> int:
        """How often in a row it died without having been healthy in between."""
        return self._lives.failures

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
        self._lives.begin()
        try:
            self.process = launch(self.plan.prepare(self.deaths), self.log)
        except (CorralError, OSError) as error:
            self.exit_status = None
            self._fail(error.message if isinstance(error, CorralError) else str(error))

    def stop(self) -> None:
        """Ask, ask again, kill."""
        if self.process is None:
            return
        popen, plan = self.process.popen, self.plan
        if (
            plan.hurry_s is None
            or ask_to_stop(popen, plan.hurry_s, plan.stop_signal) is None
        ):
            stop(popen, plan.stop_s, plan.stop_signal)
        self.process = None

    def last_words(self) -> str:
        return self.process.last_line() if self.process else self.complaint

    def _notice_death(self, process: Process) -> bool:
        status = process.popen.poll()
        if status is None:
            return False
        # What it started must not go on beside its successor.
        kill(process.popen)
        self.exit_status, self.process = status, None
        self.restarts += 1
        self._fail(process.last_line())
        return True

    def _fail(self, complaint: str) -> None:
        self.complaint = complaint
        self._start_at = time.monotonic() + self._lives.end()
