"""Sees what changes in memory alone: workers, nodes, models held, progress, figures.

Only while somebody listens; what comes and goes between two looks is not seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from corral.core.nodes.worker import REST_STATE, WorkerState
from corral.manager.access.keys import Keys
from corral.manager.cluster.state import NodeLink, WorkerLink
from corral.manager.context import ManagerContext
from corral.manager.events.broadcast import Broadcast
from corral.manager.events.ring import ClusterFact, TaskChange
from corral.manager.events.task_events import TaskEvents

V = TypeVar("V")
LOOK_S = 0.25
_FIGURES_S = 0.5


@dataclass(frozen=True, slots=True)
class _SeenWorker:
    name: str
    node_id: str
    state: WorkerState
    error: str | None
    models: frozenset[str]


@dataclass(frozen=True, slots=True)
class _SeenNode:
    hostname: str
    status: str
    is_held: bool


@dataclass(slots=True)
class _SeenCluster:
    workers: dict[str, _SeenWorker] = field(default_factory=dict)
    nodes: dict[str, _SeenNode] = field(default_factory=dict)
    progress: dict[str, tuple[float, str]] = field(default_factory=dict)


class ClusterEvents:
    """Compares the cluster with what it was a moment ago."""

    def __init__(
        self,
        ctx: ManagerContext,
        broadcast: Broadcast,
        task_events: TaskEvents,
        keys: Keys,
    ) -> None:
        self._broadcast = broadcast
        self._task_events = task_events
        self._cluster = ctx.cluster
        self._keys = keys
        self._clock = ctx.clock
        self._seen = _SeenCluster()
        self._figures: dict[str, Any] = {}
        self._counted: tuple[float, Counter[str]] = (0.0, Counter())
        broadcast.woken.listen(self.begin)

    def begin(self) -> None:
        """From here on what changes is told."""
        self._seen = self._take()
        self._figures = {}
        self._counted = (self._clock.monotonic(), Counter(self._task_events.ended))

    async def step(self) -> None:
        broadcast = self._broadcast
        broadcast.look_after(self._keys.is_good)
        if not broadcast.is_awake:
            return
        now, before, seen = self._clock.now(), self._seen, self._take()
        self._seen = seen
        broadcast.tell_changes(list(self._progress(before, seen, now)))
        for fact in (*_workers(before, seen, now), *_nodes(before, seen, now)):
            broadcast.tell(fact)
        if self._clock.monotonic() - self._counted[0] >= _FIGURES_S:
            self._tell_figures(now)

    def _take(self) -> _SeenCluster:
        cluster, before = self._cluster, self._seen
        return _SeenCluster(
            {
                key: _worker(link, before.workers.get(key))
                for key, link in cluster.workers.items()
            },
            {
                key: _node(link, before.nodes.get(key))
                for key, link in cluster.nodes.items()
            },
            dict(cluster.progress),
        )

    def _progress(
        self, before: _SeenCluster, seen: _SeenCluster, now: datetime
    ) -> Iterator[TaskChange]:
        for task_id, told in seen.progress.items():
            task = self._cluster.tasks.get(task_id)
            if told == before.progress.get(task_id) or task is None:
                continue
            yield TaskChange(
                "task_progress",
                task_id,
                task.spec.job_type,
                "running",
                task.attempt,
                now,
                task.worker_id,
                task.node_id,
                task.spec.labels,
                {"progress": {"fraction": told[0], "message": told[1]}},
            )

    # figures -------------------------------------------------------------------
    def _tell_figures(self, now: datetime) -> None:
        """How the whole is doing, when that is not as it was."""
        ended, at = Counter(self._task_events.ended), self._clock.monotonic()
        since, before = self._counted
        took_s = at - since
        self._counted = (at, ended)
        rates = {
            word: round((ended[event] - before[event]) / took_s, 3)
            for word, event in (
                ("completed_per_s", "task_completed"),
                ("failed_per_s", "task_failed"),
            )
        }
        figures = {**self._counts(), **rates}
        if figures != self._figures:
            self._figures = figures
            self._broadcast.tell(ClusterFact("cluster_summary", now, figures))

    def _counts(self) -> dict[str, Any]:
        cluster, seen = self._cluster, self._seen
        orders = (o for w in cluster.workers.values() for o in w.orders.values())
        inside = (o for w in cluster.inside.values() for o in w.orders.values())
        return {
            "queued_tasks": cluster.scheduler.waiting_count(),
            "running_tasks": sum(len(o.left) for o in (*orders, *inside)),
            "workers": Counter(REST_STATE[w.state] for w in seen.workers.values()),
            "nodes": Counter(node.status for node in seen.nodes.values()),
        }


def _worker(link: WorkerLink, known: _SeenWorker | None) -> _SeenWorker:
    """As it is now; the one that is known where nothing is different."""
    row, held = link.worker, link.shelf.held
    if (
        known is not None
        and known.state is row.state
        and known.error == row.error
        and known.models == held.keys()
        and known.node_id == row.node_id
    ):
        return known
    return _SeenWorker(
        row.spec.name, row.node_id, row.state, row.error, frozenset(held)
    )


def _node(link: NodeLink, known: _SeenNode | None) -> _SeenNode:
    made = _SeenNode(link.node.hostname, str(link.node.state), bool(link.holds))
    return known if known == made else made


def _differing(old: Mapping[str, V], new: Mapping[str, V]) -> list[str]:
    """What is there, or was: hardly ever much, of thousands that stayed the same."""
    found = [key for key, value in new.items() if old.get(key) is not value]
    if len(old) + len(found) > len(new):
        found += [key for key in old if key not in new]
    return found


def _workers(
    before: _SeenCluster, seen: _SeenCluster, now: datetime
) -> Iterator[ClusterFact]:
    for key in _differing(before.workers, seen.workers):
        old, new = before.workers.get(key), seen.workers.get(key)
        row = new or old
        assert row is not None
        who = {"worker_id": key, "name": row.name, "node_id": row.node_id}
        place = (row.node_id, key)
        had = old.models if old else frozenset()
        has = new.models if new else frozenset()
        if (
            old is None
            or new is None
            or (old.state, old.error)
            != (
                new.state,
                new.error,
            )
        ):
            data = {**who, **_status(old, new)}
            yield ClusterFact("worker_status_changed", now, data, *place)
        for event, names in (
            ("model_loaded", has - had),
            ("model_unloaded", had - has),
        ):
            for name in sorted(names):
                yield ClusterFact(event, now, {**who, "model_name": name}, *place)


def _status(old: _SeenWorker | None, new: _SeenWorker | None) -> dict[str, Any]:
    return {
        "status": REST_STATE[new.state] if new else "removed",
        "state": str(new.state) if new else "removed",
        "old_status": REST_STATE[old.state] if old else None,
        "error": new.error if new else None,
    }


def _nodes(
    before: _SeenCluster, seen: _SeenCluster, now: datetime
) -> Iterator[ClusterFact]:
    for key in _differing(before.nodes, seen.nodes):
        old, new = before.nodes.get(key), seen.nodes.get(key)
        row = new or old
        assert row is not None
        data = {
            "node_id": key,
            "hostname": row.hostname,
            "status": new.status if new else "removed",
            "old_status": old.status if old else None,
            "is_held": row.is_held,
        }
        yield ClusterFact("node_status_changed", now, data, key)
