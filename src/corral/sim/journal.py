"""Reads what `corral record` wrote, and makes its decisions again, to the last bit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, get_args

import msgspec

from corral.errors import InvalidField
from corral.scheduler.events import SchedulerEvent
from corral.scheduler.plan import Plan
from corral.scheduler.policy import Policy
from corral.scheduler.scheduler import Scheduler
from corral.scheduler.snapshot import FORMAT, Line, restore

_EVENTS: dict[str, type] = {kind.__name__: kind for kind in get_args(SchedulerEvent)}


@dataclass(frozen=True, slots=True)
class Planned:
    """A call of `plan` and what came of it; `line` is where that stands."""

    now: float
    can_send: bool
    plan: Plan
    line: int = 0


Step = SchedulerEvent | Planned


@dataclass(frozen=True, slots=True)
class RecordedJournal:
    """`is_whole` says that its beginning is known: all of it can be decided again."""

    version: str
    policy: Policy
    is_whole: bool
    state: list[Line] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def scheduler(self) -> Scheduler:
        """A scheduler as it was when the journal began."""
        if not self.state:
            return Scheduler(self.policy)
        found = restore(self.state)
        if not isinstance(found, Scheduler):
            raise InvalidField("the journal's state is no scheduler", field="state")
        return found


@dataclass(frozen=True, slots=True)
class Difference:
    """The first decision that came out otherwise."""

    line: int
    now: float
    recorded: Plan
    made: Plan


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """How many events, plans and orders were gone through, and where it ended."""

    events: int
    plans: int
    orders: int
    difference: Difference | None = None


def read_journal(lines: Iterable[bytes]) -> RecordedJournal:
    """A journal from its lines of JSON.

    Raises:
        InvalidField: it is none, or of a version that is not known here.
    """
    told = iter(enumerate(lines, 1))
    number, journal = 1, None
    try:
        _, first = next(told, (1, b"{}"))
        journal = _begun(msgspec.json.decode(first))
        for number, line in told:
            _add(journal, msgspec.json.decode(line), number)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InvalidField(
            f"line {number} is no line of a journal: {error}", field="journal"
        ) from error
    return journal


def _begun(head: dict[str, Any]) -> RecordedJournal:
    if head.get("journal") != FORMAT:
        raise InvalidField(
            f"this is no journal of format {FORMAT}; 'corral record FILE' makes one",
            field="journal",
        )
    policy = msgspec.convert(head["policy"], Policy)
    return RecordedJournal(head["version"], policy, head["is_whole"])


def _add(journal: RecordedJournal, told: dict[str, Any], number: int) -> None:
    if "plan" in told:
        plan = msgspec.convert(told["plan"], Plan)
        step = Planned(float(told["now"]), told["can_send"], plan, number)
        journal.steps.append(step)
        return
    ((name, value),) = told.items()
    if name == "state":
        journal.state.append(value)
    else:
        journal.steps.append(msgspec.convert(value, _EVENTS[name]))


def check(journal: RecordedJournal) -> ReplayResult:
    """Decide everything again, until something comes out otherwise.

    Raises:
        InvalidField: the journal does not say what was known when it began.
    """
    if not journal.is_whole:
        raise InvalidField(
            "this journal begins in the middle of things: what was known before it is "
            "not in it, so its decisions cannot be made again",
            field="journal",
        )
    scheduler = journal.scheduler()
    events = plans = orders = 0
    for step in journal.steps:
        if not isinstance(step, Planned):
            scheduler.apply(step)
            events += 1
            continue
        made = scheduler.plan(step.now, can_send=step.can_send)
        plans += 1
        orders += len(made.orders)
        if made != step.plan:
            found = Difference(step.line, step.now, step.plan, made)
            return ReplayResult(events, plans, orders, found)
    return ReplayResult(events, plans, orders)


def plans(journal: RecordedJournal) -> Iterator[Planned]:
    return (step for step in journal.steps if isinstance(step, Planned))
