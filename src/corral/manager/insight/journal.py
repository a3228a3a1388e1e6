"""Remembers what the scheduler was told and what it decided, within bounds.

References are kept and nothing is copied or written while work is handed out; whoever
asks for the journal pays for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from corral import __version__
from corral.errors import Conflict
from corral.scheduler.events import SchedulerEvent, TasksQueued
from corral.scheduler.plan import Plan
from corral.scheduler.policy import Policy
from corral.scheduler.scheduler import Scheduler
from corral.scheduler.snapshot import FORMAT, Snapshot

_PARTS = 4
# A snapshot costs some microseconds for each task that waits: with more than these it
# would be felt, and the part begins without one.
_QUIET = 5_000

_encode = msgspec.json.Encoder().encode


Planned = tuple[float, bool, Plan]
"""When a plan was asked for, whether orders could be sent, and what came of it."""


@dataclass(slots=True)
class JournalPart:
    """Some of what happened, and the state it began with, if that was taken."""

    is_first: bool = False
    snapshot: Snapshot | None = None
    steps: list[SchedulerEvent | Planned] = field(default_factory=list)
    tasks: int = 0
    until: float = 0.0

    @property
    def is_known(self) -> bool:
        """Can its decisions be made again?"""
        return self.is_first or self.snapshot is not None


class Journal:
    """The last `limit` events; the oldest go a quarter at a time."""

    def __init__(self, policy: Policy, limit: int) -> None:
        self._policy = policy
        self._part = JournalPart(is_first=True)
        self._parts = deque([self._part])
        self._size = max(1, limit // _PARTS)

    def note(self, event: SchedulerEvent) -> None:
        part = self._part
        part.steps.append(event)
        part.tasks += len(event.tasks) if isinstance(event, TasksQueued) else 1

    def note_plan(self, planned: Planned, scheduler: Scheduler) -> None:
        part = self._part
        part.steps.append(planned)
        part.tasks += 1
        part.until = planned[0]
        if part.tasks >= self._size:
            self._turn(scheduler)

    def _turn(self, scheduler: Scheduler) -> None:
        """Begin a new part, and forget the oldest."""
        is_quiet = scheduler.waiting_count() <= _QUIET
        self._part = JournalPart(
            snapshot=Snapshot(scheduler, self) if is_quiet else None
        )
        self._parts.append(self._part)
        if len(self._parts) > _PARTS + 1:
            self._parts.popleft()

    def lines(self, since: float) -> Iterator[bytes]:
        """The journal as JSON lines: of some time before `since`, until now.

        It begins with a state that is known, where there is one: what follows can be
        decided again.
        """
        parts = self._from(since)
        steps = [list(part.steps) for part in parts]
        first = parts[0]
        head = {
            "journal": FORMAT,
            "version": __version__,
            "policy": self._policy,
            "is_whole": first.is_known,
        }
        yield _encode(head) + b"\n"
        for line in first.snapshot.lines() if first.snapshot else ():
            yield _encode({"state": line}) + b"\n"
        for some in steps:
            for step in some:
                yield _encode(_told(step)) + b"\n"

    def _from(self, since: float) -> list[JournalPart]:
        parts = list(self._parts)
        known = [n for n, part in enumerate(parts) if part.is_known]
        # The part that `since` falls into, or the last one before with a known state.
        first = next((n for n, p in enumerate(parts) if p.until >= since), -1)
        before = [n for n in known if n <= first] if first >= 0 else known
        return parts[before[-1] if before else known[0] if known else 0 :]


def _told(step: SchedulerEvent | Planned) -> dict[str, object]:
    if isinstance(step, tuple):
        return {"plan": step[2], "now": step[0], "can_send": step[1]}
    return {type(step).__name__: step}


def journal_of(scheduler: Scheduler) -> Journal:
    """What a scheduler remembers.

    Raises:
        Conflict: it was told to remember nothing.
    """
    if not isinstance(scheduler, RecordedScheduler):
        raise Conflict(
            "this manager keeps no journal: start it with CORRAL_JOURNAL_EVENTS=100000"
        )
    return scheduler.journal


def scheduler_of(policy: Policy, journal_events: int) -> Scheduler:
    """A scheduler that keeps a journal of so many events; none without any."""
    if not journal_events:
        return Scheduler(policy)
    return RecordedScheduler(policy, journal_events)


class RecordedScheduler(Scheduler):
    """A scheduler with a journal of everything that could change its mind."""

    def __init__(self, policy: Policy, limit: int) -> None:
        super().__init__(policy)
        self.journal = Journal(policy, limit)

    def apply(self, event: SchedulerEvent) -> None:
        self.journal.note(event)
        super().apply(event)

    def plan(self, now: float, *, can_send: bool = True) -> Plan:
        plan = super().plan(now, can_send=can_send)
        self.journal.note_plan((now, can_send, plan), self)
        return plan
