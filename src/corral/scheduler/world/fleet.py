"""The workers as the scheduler sees them, indexed by what decisions ask for.

What a worker may be given follows from its types, its memory, its node's labels and
taints, and whether that node is held. It is worked out when one of them changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from corral.core.nodes.labels import ANYWHERE, Constraint
from corral.scheduler.events import NodeHeld, NodeMarked, WorkerAway, WorkerBroken
from corral.scheduler.world.decision import Decision

if TYPE_CHECKING:
    from corral.scheduler.world.line import TaskLine

_LOOK_AT = 4
"""How many equal workers are compared at most."""


@dataclass(slots=True)
class FleetModel:
    """A model in a worker's memory."""

    used_at: float = 0.0
    in_use: int = 0


@dataclass(slots=True)
class FleetNode:
    """A node: what is known of it beside its workers."""

    labels: Mapping[str, str] = field(default_factory=dict)
    taints: frozenset[str] = frozenset()
    held: str | None = None

    def admits(self, constraint: Constraint) -> bool:
        return not constraint.missing(self.labels) and not constraint.repelled(
            self.taints
        )


@dataclass(slots=True, eq=False)
class FleetWorker:
    worker_id: str
    node_id: str
    types: frozenset[str]
    slots: int
    open_orders: int
    speed: float = 1.0
    memory_mb: float | None = None
    models: dict[str, FleetModel] = field(default_factory=dict)
    free_at: float = 0.0
    """When what it has been given is expected to be done."""
    is_held: bool = False
    gpus: float = 0.0
    was_late: bool = False
    """What it was given last had waited far too long."""
    others_mb: float = 0.0
    """What others use of its card."""
    given: tuple[Decision, ...] = ()
    """Its open orders, if they end in the order they came."""
    told: frozenset[str] | None = None
    """The models it has by its own last word; None before it said anything."""
    dropping: dict[str, None] = field(default_factory=dict)
    """Models that its open orders drop: until they are through, it says it has them."""
    group: WorkerGroup = field(init=False, repr=False)

    @property
    def has_room(self) -> bool:
        return self.open_orders < self.slots and not self.is_held

    def residual_s(self, now: float) -> float:
        """Until it is expected to be free; the later it is, the longer it may take."""
        if not self.open_orders:
            return 0.0
        left_s = self.free_at - now
        return left_s if left_s > 0 else -0.5 * left_s


@dataclass(slots=True, eq=False)
class WorkerGroup:
    """Workers that differ in nothing that filters look at."""

    key: tuple[object, ...]
    types: frozenset[str]
    memory_mb: float | None
    slots: int
    place: FleetNode
    workers: dict[str, FleetWorker] = field(default_factory=dict)
    waiting: dict[str, TaskLine] = field(default_factory=dict)
    """Lines with tasks that these workers could run."""
    speed: float = 0.0
    """Of the fastest there was."""
    lanes: list[dict[str, FleetWorker]] = field(default_factory=list)
    """Those with n open orders that may get more, the longest without change first."""

    def serves(self, line: TaskLine, size_mb: float) -> bool:
        if line.only is not None:
            return line.only in self.workers
        if self.memory_mb is not None and size_mb > self.memory_mb:
            return False
        if line.job_type not in self.types:
            return False
        if line.constraint is None and not self.place.taints:
            return True
        return self.place.admits(line.constraint or ANYWHERE)

    def shared(self) -> list[str]:
        """Lines with tasks that more than one worker could run, whenever it is free."""
        return [
            key
            for key, line in self.waiting.items()
            if line.only is None and line.need is None and not line.gang_size
        ]

    def free(self, ahead: int) -> Iterator[FleetWorker]:
        """Workers with room, the least loaded first, a few at most."""
        count = 0
        for lane in self.lanes[: self.slots * ahead]:
            for worker in lane.values():
                yield worker
                count += 1
                if count >= _LOOK_AT:
                    return

    def has_free(self, ahead: int) -> bool:
        return any(self.lanes[: self.slots * ahead])

    def file(self, worker: FleetWorker) -> None:
        if worker.is_held:
            return
        while len(self.lanes) <= worker.open_orders:
            self.lanes.append({})
        self.lanes[worker.open_orders][worker.worker_id] = worker

    def unfile(self, worker: FleetWorker) -> None:
        if worker.open_orders < len(self.lanes):
            self.lanes[worker.open_orders].pop(worker.worker_id, None)


class Fleet:
    def __init__(self) -> None:
        self.workers: dict[str, FleetWorker] = {}
        self.broken: dict[str, WorkerBroken] = {}
        self.away: dict[str, WorkerAway] = {}
        self.groups: dict[tuple[object, ...], WorkerGroup] = {}
        self.holders: dict[str, dict[str, FleetWorker]] = {}
        """By model, who has it in memory."""
        self.ready: dict[str, dict[str, FleetWorker]] = {}
        """Those of them that have room for an order."""
        self.epochs: dict[str, int] = {}
        """By model, how often those who have it, or what is known of it, changed."""
        self.pins: dict[str, frozenset[str]] = {}
        """By worker, the models it must not drop."""
        self._places: dict[str, FleetNode] = {}
        self._by_node: dict[str, dict[str, FleetWorker]] = {}

    # workers -----------------------------------------------------------------
    def add(self, worker: FleetWorker) -> WorkerGroup:
        self.remove(worker.worker_id)
        place = self.place(worker.node_id)
        worker.is_held = place.held is not None
        marks = (tuple(sorted(place.labels.items())), place.taints)
        speed = round(math.log2(worker.speed), 1)
        key = (worker.types, worker.memory_mb, worker.slots, speed, marks)
        group = self.groups.get(key)
        if group is None:
            open_place = FleetNode(place.labels, place.taints)
            group = self.groups[key] = WorkerGroup(
                key, worker.types, worker.memory_mb, worker.slots, open_place
            )
        worker.group = group
        group.workers[worker.worker_id] = worker
        group.speed = max(group.speed, worker.speed)
        group.file(worker)
        self.workers[worker.worker_id] = worker
        self._by_node.setdefault(worker.node_id, {})[worker.worker_id] = worker
        for model in worker.models:
            self._note(worker, model)
        return group

    def remove(self, worker_id: str) -> FleetWorker | None:
        self.broken.pop(worker_id, None)
        self.away.pop(worker_id, None)
        worker = self.workers.pop(worker_id, None)
        if worker is not None:
            worker.group.unfile(worker)
            del worker.group.workers[worker_id]
            del self._by_node[worker.node_id][worker_id]
            for model in worker.models:
                self._forget(worker, model)
        return worker

    def drop(self, group: WorkerGroup) -> None:
        """Forget a group that has no worker any more."""
        del self.groups[group.key]

    def set_open(self, worker: FleetWorker, count: int) -> None:
        worker.group.unfile(worker)
        had_room = worker.has_room
        worker.open_orders = count
        worker.group.file(worker)
        self._note_room(worker, had_room)
        for model in worker.models:
            self.touch(model)

    def _note_room(self, worker: FleetWorker, had_room: bool) -> None:
        if worker.has_room and not had_room:
            for model in worker.models:
                self.ready.setdefault(model, {})[worker.worker_id] = worker
        elif had_room and not worker.has_room:
            for model in worker.models:
                self.ready[model].pop(worker.worker_id, None)

    # nodes -------------------------------------------------------------------
    def place(self, node_id: str) -> FleetNode:
        """What is known of a node; of an unknown one that it is open and plain."""
        return self._places.get(node_id) or FleetNode()

    def hold(self, event: NodeHeld) -> list[FleetWorker]:
        """The workers that this makes free, or takes away."""
        self._places.setdefault(event.node_id, FleetNode()).held = event.reason
        return self.of_node(event.node_id)

    def mark(self, event: NodeMarked) -> list[FleetWorker]:
        place = self._places.setdefault(event.node_id, FleetNode())
        place.labels, place.taints = dict(event.labels), event.taints
        return self.of_node(event.node_id)

    def of_node(self, node_id: str) -> list[FleetWorker]:
        return list(self._by_node.get(node_id, {}).values())

    # models ------------------------------------------------------------------
    def touch(self, model: str) -> None:
        """What was worked out of those who have it must be worked out again."""
        self.epochs[model] = self.epochs.get(model, 0) + 1

    def load(self, worker: FleetWorker, model: str, now: float) -> None:
        worker.models[model] = FleetModel(now)
        self._note(worker, model)

    def swap(
        self, worker: FleetWorker, model: str, victims: Iterable[str], now: float
    ) -> None:
        """An order drops some models, then loads another."""
        for victim in victims:
            self.unload(worker, victim)
            worker.dropping[victim] = None
        worker.dropping.pop(model, None)
        self.load(worker, model, now)

    def believe(self, worker: FleetWorker, models: frozenset[str]) -> None:
        """Follow a worker's own word, as far as its open orders leave it true."""
        worker.told = models
        for model in [m for m in worker.models if m not in models]:
            if not worker.models[model].in_use:
                self.unload(worker, model)
        for model in sorted(models - worker.models.keys() - worker.dropping.keys()):
            self.load(worker, model, 0.0)

    def rest(self, worker: FleetWorker) -> None:
        """It has no order any more: what it has is what it says.

        An order that never got through has loaded nothing, and dropped nothing.
        """
        worker.dropping.clear()
        for held in worker.models.values():
            held.in_use = 0
        if worker.told is not None:
            self.believe(worker, worker.told)

    def pin(self, worker_id: str, models: frozenset[str]) -> None:
        if models:
            self.pins[worker_id] = models
        else:
            self.pins.pop(worker_id, None)

    def unload(self, worker: FleetWorker, model: str) -> None:
        if worker.models.pop(model, None) is not None:
            self._forget(worker, model)

    def copies(self, model: str) -> int:
        return len(self.holders.get(model, ()))

    def _note(self, worker: FleetWorker, model: str) -> None:
        self.holders.setdefault(model, {})[worker.worker_id] = worker
        self.ready.setdefault(model, {})
        self.touch(model)
        if worker.has_room:
            self.ready[model][worker.worker_id] = worker

    def _forget(self, worker: FleetWorker, model: str) -> None:
        holders = self.holders.get(model)
        self.touch(model)
        if holders is not None:
            holders.pop(worker.worker_id, None)
            self.ready[model].pop(worker.worker_id, None)
            if not holders:
                del self.holders[model], self.ready[model]
