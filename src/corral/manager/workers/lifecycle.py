"""Restarts of workers: asked for here, carried out by the agents that run them.

The wish is a number in the worker's row, so it outlives a restart of the manager.
"""

from __future__ import annotations

from dataclasses import replace

from corral.manager.cluster.state import Cluster, WorkerLink
from corral.manager.tasks.dispatch import Dispatching
from corral.manager.workers.registry import Registry
from corral.scheduler.plan import WorkerGone
from corral.store.base import Store


class Restarting:
    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        registry: Registry,
        dispatching: Dispatching,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._registry = registry
        self._dispatching = dispatching

    async def restart(self, worker_id: str) -> float:
        """Let a worker start anew under its id; for how many seconds, about.

        It gets no more orders and finishes what it runs; what it cannot finish in
        the agent's grace goes back uncharged.
        """
        link = self._registry.worker(worker_id)
        generation = link.worker.generation + 1
        await self._store.save_worker(replace(link.worker, generation=generation))
        link.worker = replace(link.worker, generation=generation)
        link.is_leaving = True
        self._cluster.scheduler.apply(WorkerGone(worker_id))
        self._dispatching.kick()
        self._registry.node(link.worker.node_id).touch_desired()
        return _downtime_s(link)


def _downtime_s(link: WorkerLink) -> float:
    """What a task of it took on average, while it has some, and its last start."""
    task_s = link.busy_s / link.ran if link.ran and link.orders else 0.0
    return round(task_s + link.start_s, 1)
