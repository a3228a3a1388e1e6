"""One child process of `corral up`: started, watched, started again with backoff.

It never waits and never gives up; whether a death is fatal is its caller's decision.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

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
from corral.errors import CorralError
from corral.process.backoff import Backoff

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
