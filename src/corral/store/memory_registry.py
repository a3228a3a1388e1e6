"""Job types, nodes, workers and keys in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from corral.core.access.key import Key
from corral.core.access.secret import Secret
from corral.core.nodes.app import App
from corral.core.nodes.node import Node
from corral.core.nodes.worker import Worker
from corral.core.nodes.worker_type import WorkerType
from corral.core.tasks.job_type import JobType
from corral.store.memory_shelf import MemoryShelf
from corral.store.text import clean_or_none


class MemoryRegistry(MemoryShelf):
    async def save_job_type(self, job_type: JobType) -> None:
        self._job_types[job_type.name] = job_type

    async def job_types(self) -> Sequence[JobType]:
        return [self._job_types[name] for name in sorted(self._job_types)]

    async def delete_job_type(self, name: str) -> None:
        self._job_types.pop(name, None)

    async def save_app(self, app: App) -> None:
        self._apps[app.name] = app

    async def apps(self) -> Sequence[App]:
        return [self._apps[name] for name in sorted(self._apps)]

    async def delete_app(self, name: str) -> None:
        self._apps.pop(name, None)

    async def save_node(self, node: Node) -> None:
        self._nodes[node.id] = node

    async def delete_node(self, node_id: str) -> None:
        self._nodes.pop(node_id, None)

    async def nodes(self) -> Sequence[Node]:
        return [self._nodes[id_] for id_ in sorted(self._nodes)]

    async def save_worker(self, worker: Worker) -> None:
        self._workers[worker.id] = replace(worker, error=clean_or_none(worker.error))

    async def save_workers(self, several: Sequence[Worker]) -> None:
        for worker in several:
            await self.save_worker(worker)

    async def delete_worker(self, worker_id: str) -> None:
        worker = self._workers.pop(worker_id, None)
        if worker is not None and worker.spec.gpus not in ("", "0"):
            self._gone_workers[worker_id] = worker.spec.gpus

    async def workers(self) -> Sequence[Worker]:
        return [self._workers[id_] for id_ in sorted(self._workers)]

    async def save_worker_type(self, worker_type: WorkerType) -> None:
        self._worker_types[worker_type.name] = worker_type

    async def delete_worker_type(self, name: str) -> None:
        self._worker_types.pop(name, None)

    async def worker_types(self) -> Sequence[WorkerType]:
        return [self._worker_types[name] for name in sorted(self._worker_types)]

    async def save_key(self, key: Key) -> None:
        self._keys[key.id] = key

    async def keys(self) -> Sequence[Key]:
        return [self._keys[id_] for id_ in sorted(self._keys)]

    async def save_secret(self, secret: Secret) -> None:
        self._secrets[secret.name] = secret

    async def delete_secret(self, name: str) -> None:
        self._secrets.pop(name, None)

    async def secrets(self) -> Sequence[Secret]:
        return [self._secrets[name] for name in sorted(self._secrets)]

    async def use_key(self, key_id: str, now: datetime) -> bool:
        key = self._keys.get(key_id)
        if key is None or not key.is_valid(now):
            return False
        if key.uses_left is not None:
            self._keys[key_id] = replace(key, uses_left=key.uses_left - 1)
        return True

    async def stamp_keys(self, used: Mapping[str, datetime]) -> None:
        for key_id, at in used.items():
            if (key := self._keys.get(key_id)) is not None:
                self._keys[key_id] = replace(key, last_used_at=at)
