"""All workers of this node: what is desired is started, what is not is stopped."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from corral.agent.life.worker_process import WorkerChild, WorkerLaunch
from corral.agent.watch.gpu_holders import GpuBinder, unstarted
from corral.core.nodes.breaker import BreakerReport
from corral.wire.agent import DesiredWorker, WorkerBeat

LOG = logging.getLogger("corral.agent")
# How long a killed worker's thread may take to clear up after it.
_CLEAR_UP_S = 10.0


class NodeWorkers:
    """The children of one registration; once closed it starts nothing more."""

    def __init__(
        self,
        launch: WorkerLaunch,
        on_change: Callable[[], None],
        gpus: GpuBinder | None = None,
    ) -> None:
        self._launch = launch
        self._on_change = on_change
        self._gpus = gpus or GpuBinder(None)
        self._lock = threading.RLock()
        self._children: dict[str, WorkerChild] = {}
        self._desired: dict[str, DesiredWorker] = {}
        self._closed = False

    def converge(self, workers: Iterable[DesiredWorker]) -> None:
        """Make the given workers, and no others, run here. Never waits for any."""
        with self._lock:
            self._desired = {worker.worker_id: worker for worker in workers}
            self._launch.breakers.heed(self._desired.values())
            self._settle()

    def entries(self) -> list[WorkerBeat]:
        """The `workers` of a heartbeat; one being stopped counts until it is gone."""
        now = time.monotonic()
        with self._lock:
            if self._gpus.waiting:
                # What tasks have given back by now may be what a worker waits for.
                self._settle()
            running = [
                child.entry(now, self._gpus.facts(child.worker_id))
                for child in self._all()
            ]
            return [*running, *unstarted(self._gpus)]

    def recheck(self) -> None:
        """The cards of this node are others than before: give them out anew."""
        with self._lock:
            self._settle()

    def breakers(self) -> list[BreakerReport]:
        """The `breakers` of a heartbeat: those that are not closed."""
        return self._launch.breakers.reports()

    def drop(self, pairs: Sequence[tuple[str, int]]) -> None:
        """Tell who holds them that these attempts are theirs no more.

        A pair nobody is known to hold goes to all: its order may have arrived after
        the worker's last word, and (task id, attempt) means one thing everywhere.
        """
        if not pairs:
            return
        children = self._all()
        held = {child: set(child.word.held) for child in children}
        known = set().union(*held.values()) if held else set()
        for child in children:
            theirs = [list(p) for p in pairs if p in held[child] or p not in known]
            if theirs:
                child.tell({"drop": theirs})

    def tell(self, message: Mapping[str, Any]) -> None:
        for child in self._all():
            child.tell(message)

    def tick(self) -> None:
        now = time.monotonic()
        for child in self._all():
            try:
                child.tick(now)
            except Exception:
                LOG.exception("worker %s: a fault inside the agent", child.name)

    def stop(self) -> None:
        """Ask all to finish and leave; `is_empty` says when they have."""
        with self._lock:
            self._closed = True
            for child in self._children.values():
                child.stop(self._launch.policy.stop_grace_s)

    def kill(self) -> None:
        """End all now, and return when they are gone."""
        with self._lock:
            self._closed = True
            children = list(self._children.values())
        for child in children:
            child.kill()
        give_up_at = time.monotonic() + _CLEAR_UP_S
        for child in children:
            child.wait(max(0.0, give_up_at - time.monotonic()))

    @property
    def is_empty(self) -> bool:
        return not self._all()

    def _all(self) -> list[WorkerChild]:
        with self._lock:
            return [child for child in self._children.values() if not child.is_over]

    def _settle(self) -> None:
        """Close the gap between desired and running; held under the lock."""
        for worker_id, child in list(self._children.items()):
            if child.is_over:
                del self._children[worker_id]
            elif not self._closed and not _is_same(
                self._desired.get(worker_id), child.worker
            ):
                child.stop(self._launch.policy.stop_grace_s)
        if self._closed:
            return
        self._give_gpus()
        for worker_id, worker in self._desired.items():
            if worker_id not in self._children and worker_id not in self._gpus.waiting:
                child = WorkerChild(
                    worker,
                    self._launch,
                    self._on_change,
                    self._gone,
                    self._gpus.variables(worker_id),
                    self._gpus.blame,
                )
                self._children[worker_id] = child
                child.start()

    def _give_gpus(self) -> None:
        """Cards for those who ask for them; who lost theirs ends, and is begun anew."""
        before = self._gpus.waiting
        living = {worker_id: c.worker for worker_id, c in self._children.items()}
        for worker_id in self._gpus.settle(self._desired, living, self._taken()):
            LOG.warning("worker %s has lost its GPU", self._children[worker_id].name)
            self._children[worker_id].stop(0.0)
        if self._gpus.waiting != before:
            self._on_change()

    def _taken(self) -> set[str]:
        """Cards that tasks have: no worker gets them before they are given back."""
        told = (child.word.facts.get("cards") for child in self._children.values())
        some = (cards for cards in told if isinstance(cards, dict))
        return {str(card) for cards in some for ids in cards.values() for card in ids}

    def _gone(self) -> None:
        # A changed worker is started anew only when its former self has left.
        with self._lock:
            self._settle()
        self._on_change()


def _is_same(wanted: DesiredWorker | None, running: DesiredWorker) -> bool:
    """Can it go on as it is? Which types it serves is the manager's affair."""
    if wanted is None:
        return False
    return msgspec.structs.replace(wanted, job_types=running.job_types) == running
