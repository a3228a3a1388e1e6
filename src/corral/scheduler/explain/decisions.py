"""What was decided for a task, kept for a while for those who ask why."""

from __future__ import annotations

from typing import Generic, TypeVar

from corral.scheduler.events import WaitingTask
from corral.scheduler.explain.values import PastPlacement, Terms
from corral.scheduler.world.decision import MOST_OPEN, Cost, Decision
from corral.scheduler.world.fleet import FleetWorker

V = TypeVar("V")

_KEPT = 10_000


class Recent(Generic[V]):
    """A memory of the last things noted by name, with a bound and no bookkeeping.

    Keeps at least half of `most`: the older half goes as a whole, which is cheap.
    """

    def __init__(self, most: int) -> None:
        self._half = max(1, most // 2)
        self._young: dict[str, V] = {}
        self._old: dict[str, V] = {}

    def emptied(self) -> Recent[V]:
        """One that is as large, for who wants to know what is decided, not why."""
        return Recent(2 * self._half)

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def note(self, name: str, value: V) -> None:
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}
        self._young[name] = value

    def get(self, name: str) -> V | None:
        found = self._young.get(name)
        return found if found is not None else self._old.get(name)

    def pop(self, name: str) -> V | None:
        found = self._young.pop(name, None)
        old = self._old.pop(name, None)
        return found if found is not None else old


class Decisions:
    """The last orders, by task and by worker."""

    def __init__(self) -> None:
        self._placed: Recent[Decision] = Recent(_KEPT)
        self._expired: Recent[tuple[WaitingTask, float]] = Recent(_KEPT)

    def note(
        self,
        worker: FleetWorker,
        tasks: tuple[WaitingTask, ...],
        cost: Cost,
        load: str | None,
        load_s: float,
        now: float,
        passed_over: tuple[str, ...],
    ) -> None:
        """Before the order is counted as open."""
        decision = Decision(
            now,
            worker.worker_id,
            worker.node_id,
            tasks,
            cost,
            load,
            load_s,
            worker.open_orders,
            passed_over,
        )
        open_orders = min(worker.open_orders, MOST_OPEN)
        still = worker.given[-open_orders:] if open_orders else ()
        worker.given = (*still, decision)
        for task in tasks:
            self._placed.note(task.task_id, decision)

    def expire(self, task: WaitingTask, now: float) -> None:
        self._expired.note(task.task_id, (task, now))

    def placed(self, task_id: str) -> Decision | None:
        return self._placed.get(task_id)

    def expired(self, task_id: str) -> tuple[WaitingTask, float] | None:
        """A task whose deadline passed while it waited, and when that was seen."""
        return self._expired.get(task_id)


def placement_of(decision: Decision) -> PastPlacement:
    """A decision as it is told."""
    cost = decision.cost
    terms = Terms(
        0.0,
        decision.load_s,
        max(0.0, cost.setup_s - decision.load_s),
        cost.run_s,
        cost.score,
    )
    return PastPlacement(
        decision.at,
        decision.worker_id,
        decision.node_id,
        _words_of(decision),
        terms,
        decision.load,
        cost.unload if decision.load else (),
        len(decision.tasks),
        decision.passed_over,
    )


def _words_of(decision: Decision) -> str:
    model, load = decision.tasks[0].model, decision.load
    words = "it had room for one more order" if decision.was_open else "it was free"
    if model is not None and load is None:
        words += f" and had '{model}' in memory"
    elif load is not None:
        words += f"; it loads '{load}' first ({decision.load_s:.1f} s)"
        dropped = ", ".join(f"'{name}'" for name in decision.cost.unload)
        words += f" and drops {dropped} for it" if dropped else ""
    return words
