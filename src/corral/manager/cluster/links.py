"""What the leader keeps of one node or worker beside its row.

All of it can be derived again from the store and the next heartbeats.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Protocol

from corral.core.nodes.breaker import BreakerReport
from corral.core.nodes.clock_skew import ClockSkew
from corral.core.nodes.gpu import Gpu
from corral.core.nodes.node import Hold, NodeRecord, Sample, held_words
from corral.core.nodes.peer import Peer
from corral.core.nodes.worker import WorkerRecord
from corral.errors import Conflict
from corral.manager.cluster.held_models import HeldModels
from corral.manager.cluster.waiters import LongPoll
from corral.scheduler.events import NodeOffers
from corral.wire.orders import ExecRequest, Order, ReportAnswer

_ANSWERS_KEPT = 16


@dataclass(slots=True)
class OpenOrder:
    """Attempts of one order not yet ended; `misses` counts beats without them."""

    id: str
    sent_at: float
    left: set[str]
    misses: int = 0


class InsideWorker(Protocol):
    """What stands for a worker inside the manager: the calls of an app."""

    def take(self, order: Order) -> None:
        """Begin with all of it, without waiting for that."""

    def drop(self, task_id: str, attempt: int) -> None:
        """Break this attempt off; its task has ended otherwise."""


@dataclass(slots=True)
class WorkerLink:
    """A worker row and what is going on with it."""

    worker: WorkerRecord
    orders: dict[str, OpenOrder] = field(default_factory=dict)
    replies: list[asyncio.Future[dict[str, str] | None]] = field(default_factory=list)
    answers: OrderedDict[str, asyncio.Future[ReportAnswer]] = field(
        default_factory=OrderedDict
    )
    drops: set[tuple[str, int]] = field(default_factory=set)
    lingering: set[tuple[str, int]] = field(default_factory=set)
    """Attempts with GPUs of their own that were told to stop, and may not have yet."""
    execs: dict[str, ExecRequest] = field(default_factory=dict)
    """Commands it should run beside attempts and has not begun, by id."""
    memory_mb: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else it says of itself: which code it runs, how isolated."""
    breaker: str | None = None
    """The key of the breaker that keeps it from being started."""
    wanted_at: float | None = None
    """Since when (monotonic) it should register but has not."""
    is_stale: bool = False
    """Its process takes itself for registered, though that was declared dead."""
    registered_at: float | None = None
    """Since when (monotonic) it is loading, while it is."""
    start_s: float = 2.0
    """What its last start took, from registering until it was ready."""
    is_leaving: bool = False
    """Asked to stop or start anew: what it has not finished goes back uncharged."""
    is_parked: bool = False
    """Stopped because its node is drained; wanted again when that is over."""
    ran: int = 0
    failed: int = 0
    busy_s: float = 0.0
    loads: int = 0
    load_s: float = 0.0
    """How often it loaded a model, and what that took, since the manager started."""
    shelf: HeldModels = field(default_factory=HeldModels)
    inside: InsideWorker | None = None
    """Takes its orders inside this process; without it they travel by the engine."""

    ran_at: tuple[date, int] = (date.min, 0)
    """Tasks it completed on the last day (UTC) it completed any."""

    @property
    def id(self) -> str:
        return self.worker.id

    def ran_on(self, day: date) -> int:
        return self.ran_at[1] if self.ran_at[0] == day else 0

    def remember_answer(self, report_id: str) -> asyncio.Future[ReportAnswer]:
        future: asyncio.Future[ReportAnswer] = (
            asyncio.get_running_loop().create_future()
        )
        self.answers[report_id] = future
        while len(self.answers) > _ANSWERS_KEPT:
            self.answers.popitem(last=False)
        return future

    def held(self) -> Iterator[tuple[OpenOrder, str]]:
        for order in list(self.orders.values()):
            for task_id in list(order.left):
                yield order, task_id


@dataclass(slots=True)
class NodeLink:
    """A node row and its heartbeat; `seen` is monotonic seconds."""

    node: NodeRecord
    seen: float
    sample: Sample | None = None
    gpus: Sequence[Gpu] | None = None
    """What it last said of its cards; None before it said anything."""
    breakers: Sequence[BreakerReport] | None = None
    """Those of its breakers that are not closed; None before it said anything."""
    offers: NodeOffers | None = None
    """What the scheduler was told that it has for tasks with needs."""
    gpu_releases: dict[str, datetime] = field(default_factory=dict)
    """Quarantines somebody lifted, by card: when each began. Kept until the node has
    done it."""
    is_sample_kept: bool = True
    is_stamped: bool = True
    desired_version: int = 1
    is_leaving: bool = False
    """Somebody asked for its agent to stop."""
    is_leave_told: bool = False
    """Its agent has been told so."""
    is_forgotten: bool = False
    """When it stops it is no node any more, and must forget that it was."""
    owner_hold: Hold | None = None
    """Its owner uses it, as its agent says."""
    holds: tuple[Hold, ...] = ()
    """Why it is given nothing new; empty while it is open. `NodeHolds` keeps this."""
    peer: Peer | None = None
    """Where it gives model files to others, if it does."""
    is_silent: bool = False
    """Its beats are late, and it is given nothing new until they come again."""
    is_drained: bool = False
    """It was seen empty since it is being drained."""
    is_own: bool = False
    """The manager's own machine, which no agent speaks for."""
    clock: ClockSkew = field(default_factory=ClockSkew)
    is_clock_off: bool = False
    """It was told that its clock is off."""
    version_skew: str | None = None
    """Whether its version is older or newer than ours, once that was told."""
    changed: LongPoll = field(default_factory=LongPoll)
    registering: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One registration at a time: an agent that got no answer comes again."""

    @property
    def is_draining(self) -> bool:
        return any(hold.drain for hold in self.holds)

    def check_open(self) -> None:
        """Raises Conflict while it is given nothing new."""
        if self.is_own:
            raise Conflict(
                f"node {self.node.id} is the manager's own machine, without an agent: "
                "'corral join' there makes it one that runs work",
                node_id=self.node.id,
            )
        if self.holds:
            raise Conflict(
                f"node {self.node.id} is held: {held_words(self.holds)}; "
                "'corral uncordon' opens it",
                node_id=self.node.id,
            )

    def touch_desired(self) -> None:
        self.desired_version += 1
        self.changed.ring()
