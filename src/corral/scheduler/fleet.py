"""The workers as the scheduler sees them: where they are, what each serves now.

What a worker may be given follows from its types, its node's labels and taints, and
whether that node is held. It is worked out when one of them changes, not in a plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from corral.core.constraint import ANYWHERE, Constraint
from corral.scheduler.value import (
    NodeHeld,
    NodeMarked,
    WorkerAway,
    WorkerBroken,
    WorkerReady,
    private_queue,
)


@dataclass(slots=True)
class FleetWorker:
    """`types` are those it serves; `job_types` the queues it is given tasks of now."""

    worker_id: str
    node_id: str
    types: frozenset[str]
    slots: int
    open_orders: int
    job_types: frozenset[str] = frozenset()


@dataclass(slots=True)
class Place:
    """A node: what is known of it beside its workers."""

    labels: Mapping[str, str] = field(default_factory=dict)
    taints: frozenset[str] = frozenset()
    held: str | None = None

    def admits(self, constraint: Constraint) -> bool:
        return not constraint.missing(self.labels) and not constraint.repelled(
            self.taints
        )


class Fleet:
    def __init__(self) -> None:
        self.workers: dict[str, FleetWorker] = {}
        self.broken: dict[str, WorkerBroken] = {}
        self.away: dict[str, WorkerAway] = {}
        self._places: dict[str, Place] = {}
        self._strict: dict[str, tuple[str, Constraint]] = {}

    # workers -----------------------------------------------------------------
    def ready(self, event: WorkerReady) -> None:
        self.gone(event.worker_id)
        worker = self.workers[event.worker_id] = FleetWorker(
            event.worker_id,
            event.node_id,
            event.job_types,
            event.slots,
            event.open_orders,
        )
        self._settle(worker)

    def gone(self, worker_id: str) -> None:
        self.workers.pop(worker_id, None)
        self.broken.pop(worker_id, None)
        self.away.pop(worker_id, None)

    def fail(self, event: WorkerBroken) -> None:
        self.gone(event.worker_id)
        self.broken[event.worker_id] = event

    def leave(self, event: WorkerAway) -> None:
        self.gone(event.worker_id)
        self.away[event.worker_id] = event

    def serve(self, worker_id: str, job_types: frozenset[str]) -> None:
        if worker := self.workers.get(worker_id):
            worker.types = job_types
            self._settle(worker)

    def slots(self, queue: str) -> int:
        """How many orders of a queue could run at once."""
        return sum(w.slots for w in self.workers.values() if queue in w.job_types)

    # nodes -------------------------------------------------------------------
    def place(self, node_id: str) -> Place:
        """What is known of a node; of an unknown one that it is open and plain."""
        return self._places.get(node_id) or Place()

    def hold(self, event: NodeHeld) -> None:
        self._places.setdefault(event.node_id, Place()).held = event.reason
        self._settle_node(event.node_id)

    def mark(self, event: NodeMarked) -> None:
        place = self._places.setdefault(event.node_id, Place())
        place.labels, place.taints = dict(event.labels), event.taints
        self._settle_node(event.node_id)

    # queues ------------------------------------------------------------------
    def open_queue(self, name: str, job_type: str, constraint: Constraint) -> None:
        """From now on there may be tasks of a type that only some nodes may run."""
        self._strict[name] = (job_type, constraint)
        for worker in self.workers.values():
            if self._is_fit(worker, job_type, constraint):
                worker.job_types |= {name}

    def close_queue(self, name: str) -> None:
        del self._strict[name]
        for worker in self.workers.values():
            worker.job_types -= {name}

    def type_of(self, queue: str) -> str:
        """The type of a queue's tasks; a worker's own queue is a type by itself."""
        found = self._strict.get(queue)
        return queue if found is None else found[0]

    def strict_queues(self, job_type: str | None = None) -> list[str]:
        """Queues of tasks that not every node may run, of one type or of all."""
        every = self._strict.items()
        return [name for name, (of, _) in every if job_type in (None, of)]

    def _settle_node(self, node_id: str) -> None:
        for worker in self.workers.values():
            if worker.node_id == node_id:
                self._settle(worker)

    def _settle(self, worker: FleetWorker) -> None:
        place = self.place(worker.node_id)
        if place.held is not None:
            worker.job_types = frozenset()
            return
        served = {private_queue(worker.worker_id)}
        if place.admits(ANYWHERE):
            served |= worker.types
        for name, (job_type, constraint) in self._strict.items():
            if self._is_fit(worker, job_type, constraint):
                served.add(name)
        worker.job_types = frozenset(served)

    def _is_fit(
        self, worker: FleetWorker, job_type: str, constraint: Constraint
    ) -> bool:
        place = self.place(worker.node_id)
        is_open = place.held is None and job_type in worker.types
        return is_open and place.admits(constraint)
