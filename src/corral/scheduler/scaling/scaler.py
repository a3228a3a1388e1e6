"""Decides when a worker type gets more workers and when some of them may go.

Up when what waits is predicted to wait too long; down when fewer workers were enough
for a while. It remembers what it decided, and has no clock: what it is
given has the time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from corral.core.backoff import Backoff
from corral.core.nodes.labels import ANYWHERE, Constraint
from corral.scheduler.scaling.demand import Demand
from corral.scheduler.scaling.values import (
    LaunchDecision,
    NodeRoom,
    RetireDecision,
    ScaledType,
    ScaledWorker,
    ScaledWorkerState,
    ScalingDecision,
    ScalingInput,
    ScalingPolicy,
    TypeNow,
    place_words,
)

_MOST_BACKOFF_S = 600.0
_GIVE_UP_S = 600.0
"""So long broken, a worker is retired; before, its agent may still get it to start."""


@dataclass(slots=True)
class TypeMemory:
    """What is remembered of one type."""

    changed_at: float = -math.inf
    needed_at: list[float] = field(default_factory=list)
    """When so many workers and one more were last needed, by number."""
    ran: dict[str, int] = field(default_factory=dict)
    broken: dict[str, float] = field(default_factory=dict)
    failures: int = 0
    retry_at: float = -math.inf
    error: str = ""
    avoid: Counter[str] = field(default_factory=Counter)

    def follow(
        self, workers: Sequence[ScaledWorker], now: float, base_s: float
    ) -> None:
        """Take note of launches that failed, and of those that did not."""
        broken = [w for w in workers if w.standing is ScaledWorkerState.BROKEN]
        for worker in broken:
            if worker.worker_id not in self.broken:
                self.fail(worker.node_id, now, base_s, worker.error)
        self.broken = {w.worker_id: self.broken.get(w.worker_id, now) for w in broken}
        for worker in workers:
            if worker.standing is ScaledWorkerState.SERVING:
                self.avoid.pop(worker.node_id, None)
                if not broken and now >= self.retry_at:
                    self.failures = 0

    def fail(self, node_id: str, now: float, base_s: float, error: str) -> None:
        self.failures += 1
        pauses = Backoff(max(base_s, 1.0), _MOST_BACKOFF_S)
        self.retry_at = now + pauses.delay_s(self.failures)
        self.avoid[node_id] += 1
        self.error = error

    def has_run(self, workers: Sequence[ScaledWorker]) -> bool:
        """Did one of them end a task since this was asked last?"""
        before, self.ran = self.ran, {w.worker_id: w.ran for w in workers}
        return any(count > before.get(name, 0) for name, count in self.ran.items())

    def need(self, there: int, needed: int, now: float) -> None:
        """So many of those there are in use; a new one has its time to be needed."""
        del self.needed_at[there:]
        self.needed_at += [now] * (there - len(self.needed_at))
        for number in range(min(needed, there)):
            self.needed_at[number] = now

    def surplus(self, now: float, idle_s: float) -> int:
        """How many were not needed for so long."""
        return sum(now - at >= idle_s for at in self.needed_at)


class ScalingState:
    """What was given, where decisions already made have happened."""

    def __init__(self, given: ScalingInput) -> None:
        self.given = given
        self.rooms = {room.node_id: room for room in given.nodes}
        self.total = given.total
        kinds = {kind.name: kind for kind in given.types}
        self._starting = [
            (kinds[w.type_name].job_types, w.node_id)
            for w in given.workers
            if w.standing is ScaledWorkerState.STARTING and w.type_name in kinds
        ]

    def launch(self, kind: ScaledType, room: NodeRoom) -> None:
        self.rooms[room.node_id] = room.less(kind.gpus)
        self._starting.append((kind.job_types, room.node_id))
        self.total += 1

    def starting(self, demand: Demand) -> int:
        """Workers that will do these tasks when they are up."""
        return sum(
            demand.job_type in job_types and self.admits(node_id, demand.constraint)
            for job_types, node_id in self._starting
        )

    def admits(self, node_id: str, constraint: Constraint) -> bool:
        room = self.rooms.get(node_id)
        return room is not None and room.admits(constraint)

    def choose(
        self, kind: ScaledType, constraint: Constraint, avoid: Counter[str]
    ) -> NodeRoom | None:
        """The emptiest node that fits; tainted ones, and where it failed, last."""
        fit = (
            room
            for room in self.rooms.values()
            if room.fits(kind.gpus) and room.admits(constraint)
        )
        return min(
            fit,
            key=lambda r: (avoid[r.node_id], bool(r.taints), r.workers, r.node_id),
            default=None,
        )

    def wait_s(self, demand: Demand) -> float:
        """Seconds until what waits has been done, with those that are starting."""
        starting = self.starting(demand)
        if demand.speed + starting <= 0:
            return math.inf
        if demand.work_s is None:
            return demand.waited_s
        first_s = 0.0 if starting else demand.soonest_s
        return first_s + demand.work_s / (demand.speed + starting)


@dataclass(slots=True)
class _TypeTurn:
    """One type's turn in a decision."""

    kind: ScaledType
    memory: TypeMemory
    state: ScalingState
    workers: list[ScaledWorker]
    demands: list[Demand]
    launches: list[LaunchDecision] = field(default_factory=list)
    retires: list[RetireDecision] = field(default_factory=list)
    blocked: str = ""

    def of(self, *standings: ScaledWorkerState) -> list[ScaledWorker]:
        gone = {retire.worker_id for retire in self.retires}
        return [
            w
            for w in self.workers
            if w.standing in standings and w.worker_id not in gone
        ]

    @property
    def count(self) -> int:
        """Workers that are there to stay."""
        here = self.of(
            ScaledWorkerState.SERVING,
            ScaledWorkerState.STARTING,
            ScaledWorkerState.BROKEN,
        )
        return len(here) + len(self.launches)

    def retire(self, worker: ScaledWorker, reason: str) -> None:
        self.retires.append(RetireDecision(self.kind.name, worker.worker_id, reason))

    def is_waited_for(self, worker: ScaledWorker) -> bool:
        """Does something wait that could go to its node?"""
        return any(
            self.state.admits(worker.node_id, demand.constraint)
            for demand in self.demands
        )


class Scaler:
    """Deterministic: the same input gets the same decisions."""

    def __init__(self, policy: ScalingPolicy) -> None:
        self._policy = policy
        self._memory: dict[str, TypeMemory] = {}

    def failed(self, launch: LaunchDecision, now: float, error: str) -> None:
        """A launch could not even be asked for."""
        memory = self._memory.setdefault(launch.type_name, TypeMemory())
        memory.fail(launch.node_id, now, self._policy.cooldown_s, error)

    def decide(self, given: ScalingInput) -> ScalingDecision:
        """What to launch and what to retire now."""
        kinds = sorted(given.types, key=lambda kind: kind.name)
        known = self._memory
        self._memory = {k.name: known.get(k.name) or TypeMemory() for k in kinds}
        state = ScalingState(given)
        turns = [self._turn(kind, state) for kind in kinds]
        return ScalingDecision(
            tuple(launch for turn in turns for launch in turn.launches),
            tuple(retire for turn in turns for retire in turn.retires),
            tuple(_now_of(turn) for turn in turns),
        )

    def _turn(self, kind: ScaledType, state: ScalingState) -> _TypeTurn:
        given, memory = state.given, self._memory[kind.name]
        turn = _TypeTurn(
            kind,
            memory,
            state,
            [w for w in given.workers if w.type_name == kind.name],
            [d for d in given.demands if d.job_type in kind.job_types],
        )
        memory.follow(turn.workers, given.now, self._policy.cooldown_s)
        self._keep_least(turn)
        for demand in turn.demands:
            self._serve(turn, demand)
        self._shrink(turn)
        if turn.launches or turn.retires:
            memory.changed_at = given.now
        return turn

    # up ----------------------------------------------------------------------
    def _keep_least(self, turn: _TypeTurn) -> None:
        missing = turn.kind.least - turn.count
        reason = f"{turn.count} of at least {turn.kind.least} worker(s) were there"
        self._launch(turn, ANYWHERE, missing, reason)

    def _serve(self, turn: _TypeTurn, demand: Demand) -> None:
        """Enough workers for what waits to wait no longer than it should."""
        state, policy = turn.state, self._policy
        wait_s = state.wait_s(demand)
        if wait_s <= policy.wait_s:
            return
        if demand.speed <= 0 and any(
            state.admits(w.node_id, demand.constraint)
            for w in turn.of(ScaledWorkerState.SERVING)
        ):
            turn.blocked = "its workers cannot take what waits: more would not help"
            return
        is_calm = state.given.now - turn.memory.changed_at >= policy.cooldown_s
        if math.isfinite(wait_s) and not is_calm:
            return
        starting = state.starting(demand)
        wanted = 1
        if demand.work_s is not None:
            short = demand.work_s / policy.wait_s - demand.speed - starting
            wanted = max(1, math.ceil(short - 1e-9))
        wanted = min(wanted, demand.tasks - starting)
        self._launch(turn, demand.constraint, wanted, self._reason(demand, wait_s))

    def _reason(self, demand: Demand, wait_s: float) -> str:
        where = place_words(demand.constraint)
        words = f"{demand.tasks} task(s) of '{demand.job_type}'{where} wait"
        if math.isinf(wait_s):
            return f"{words} and no worker serves them"
        figure = "the oldest for" if demand.work_s is None else "predicted to wait"
        return f"{words}, {figure} {wait_s:.1f} s, over {self._policy.wait_s:g} s"

    def _launch(
        self, turn: _TypeTurn, constraint: Constraint, count: int, reason: str
    ) -> None:
        for _ in range(count):
            room = turn.state.choose(turn.kind, constraint, turn.memory.avoid)
            blocked = self._blocked(turn, constraint, room)
            if blocked or room is None:
                turn.blocked = blocked
                return
            turn.state.launch(turn.kind, room)
            turn.launches.append(LaunchDecision(turn.kind.name, room.node_id, reason))

    def _blocked(
        self, turn: _TypeTurn, constraint: Constraint, room: NodeRoom | None
    ) -> str:
        """Why there is not one more; empty when there may be."""
        kind, memory, now = turn.kind, turn.memory, turn.state.given.now
        if turn.count + len(turn.of(ScaledWorkerState.LEAVING)) >= kind.most:
            return f"it has its maximum of {kind.most} worker(s)"
        if turn.state.total >= self._policy.most:
            return f"the cluster has its maximum of {self._policy.most} worker(s)"
        if now < memory.retry_at:
            left_s = memory.retry_at - now
            return f"a launch failed, the next in {left_s:.0f} s: {memory.error}"
        if room is None:
            what = f"{kind.gpus} free GPU(s)" if kind.gpus else "room for a worker"
            return f"no open node{place_words(constraint)} has {what}"
        return ""

    # down --------------------------------------------------------------------
    def _shrink(self, turn: _TypeTurn) -> None:
        now, policy, kind = turn.state.given.now, self._policy, turn.kind
        self._give_up_broken(turn)
        serving, starting = (
            turn.of(ScaledWorkerState.SERVING),
            turn.of(ScaledWorkerState.STARTING),
        )
        busy = sum(w.is_busy for w in serving)
        waiting = sum(demand.tasks for demand in turn.demands)
        # What came and ended between two looks was needed too.
        least = int(turn.memory.has_run(serving))
        needed = min(len(serving), max(least, busy + waiting)) + len(starting)
        turn.memory.need(len(serving) + len(starting), needed, now)
        over = turn.count - kind.most
        for worker in _first_to_go(turn, (*serving, *starting))[: max(0, over)]:
            turn.retire(worker, f"there were {over} over its maximum of {kind.most}")
        is_calm = now - turn.memory.changed_at >= policy.cooldown_s
        if turn.launches or turn.retires or not is_calm:
            return
        surplus = turn.memory.surplus(now, policy.idle_s)
        idle = [w for w in serving if not w.is_busy and not turn.is_waited_for(w)]
        there = len(serving) + len(starting)
        reason = (
            f"for {policy.idle_s:g} s at most {there - surplus} of {there} worker(s) "
            "were needed"
        )
        most = min(surplus, turn.count - kind.least)
        for worker in _first_to_go(turn, idle)[: max(0, most)]:
            turn.retire(worker, reason)

    def _give_up_broken(self, turn: _TypeTurn) -> None:
        now = turn.state.given.now
        for worker in turn.of(ScaledWorkerState.BROKEN):
            is_long = now - turn.memory.broken[worker.worker_id] >= _GIVE_UP_S
            if is_long and turn.count > turn.kind.least and not worker.is_kept:
                turn.retire(worker, f"it cannot start: {worker.error}")


def _first_to_go(
    turn: _TypeTurn, workers: Iterable[ScaledWorker]
) -> list[ScaledWorker]:
    """Those that may go, where least is lost first: idle, not up, nothing loaded."""
    return sorted(
        (worker for worker in workers if not worker.is_kept),
        key=lambda w: (
            w.is_busy,
            turn.is_waited_for(w),
            w.standing is ScaledWorkerState.SERVING,
            w.models,
            w.worker_id,
        ),
    )


def _now_of(turn: _TypeTurn) -> TypeNow:
    waits = (turn.state.wait_s(demand) for demand in turn.demands)
    return TypeNow(
        turn.kind.name,
        turn.count,
        len(turn.of(ScaledWorkerState.SERVING)),
        len(turn.of(ScaledWorkerState.STARTING)) + len(turn.launches),
        sum(demand.tasks for demand in turn.demands),
        max(waits, default=0.0),
        turn.blocked,
    )
