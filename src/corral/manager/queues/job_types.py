"""Job types: registering them, how many of each wait, emptying their queues."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from corral.core.tasks.job_type import NAME, ORCHESTRATOR, JobType, check_name
from corral.core.tasks.outcome import Outcome, OutcomeKind
from corral.core.tasks.script import JOB_TYPE as SCRIPT
from corral.core.tasks.task import TaskError
from corral.errors import Conflict, InvalidField, NotFound
from corral.manager.context import ManagerContext
from corral.manager.signals import NameChanged
from corral.manager.tasks import Tasks
from corral.manager.tasks.payload_schema import check_schema
from corral.manager.tasks.result_cache import CacheFigures
from corral.manager.workers.registry import WorkerRegistry
from corral.store.base import RegistryStore

_CLEAR_BATCH = 1000
_TARGET = re.compile(rf"({NAME.pattern})((?:/[A-Za-z0-9._~:@!$&'()*+,;=%-]*)*)")


@dataclass(frozen=True, slots=True)
class JobTypeStatus:
    """A job type, how many tasks of it wait and how many workers have; `kept` is of
    those whose results are kept.
    """

    job_type: JobType
    waiting: int
    running: int
    kept: CacheFigures | None


class JobTypes:
    def __init__(
        self, ctx: ManagerContext, tasks: Tasks, workers: WorkerRegistry
    ) -> None:
        self._cluster = ctx.cluster
        self._store: RegistryStore = ctx.store.registry
        self._signals = ctx.signals
        self._clock = ctx.clock
        self._workers = workers
        self._settle = tasks.settle
        self._dispatch = tasks.dispatch
        self._results = tasks.results

    def get(self, name: str) -> JobType:
        found = self._cluster.job_types.get(name)
        if found is None:
            raise NotFound(f"no job type {name[:200]!r}", job_type=name[:200])
        return found

    def target_of(self, name: str) -> str | None:
        """Where tasks of a type go; None when there is no such type."""
        found = self._cluster.job_types.get(name)
        return None if found is None else found.target

    def all(self) -> list[JobTypeStatus]:
        """By name."""
        waiting, running = self._cluster.scheduler.waiting_by_type(), self._running()
        known = sorted(self._cluster.job_types.values(), key=lambda row: row.name)
        return [self._status(row, waiting, running) for row in known]

    def status(self, job_type: JobType) -> JobTypeStatus:
        waiting = self._cluster.scheduler.waiting_by_type()
        return self._status(job_type, waiting, self._running())

    def _status(
        self, row: JobType, waiting: Counter[str], running: Counter[str]
    ) -> JobTypeStatus:
        is_kept = row.cache_ttl_s is not None
        kept = self._results.figures(row.name) if is_kept else None
        return JobTypeStatus(row, waiting[row.name], running[row.name], kept)

    def _running(self) -> Counter[str]:
        """Tasks that workers and apps have, by type."""
        cluster = self._cluster
        links = chain(cluster.workers.values(), cluster.inside.values())
        ids = (id_ for link in links for o in link.orders.values() for id_ in o.left)
        tasks = (cluster.tasks.get(task_id) for task_id in ids)
        return Counter(task.spec.job_type for task in tasks if task is not None)

    async def route(self, name: str, target: str) -> None:
        """Send tasks of a type, new or known, to an endpoint of an app."""
        known = self._cluster.job_types.get(name)
        row = known or JobType(name, created_at=self._clock.now())
        await self.save(replace(row, target=target))

    async def save(self, job_type: JobType) -> JobType:
        """Register a type, or replace the one of that name; a paused one stays so.

        Raises:
            InvalidField: a name, target or schema that cannot be used.
        """
        check_name(job_type.name, "name")
        self._check_target(job_type)
        if (known := self._cluster.job_types.get(job_type.name)) is not None:
            job_type = replace(job_type, is_paused=known.is_paused)
        for field in ("input_schema", "output_schema"):
            if (text := getattr(job_type, field)) is not None:
                check_schema(text, field)
        return await self._save(job_type)

    async def _save(self, job_type: JobType) -> JobType:
        is_kept = job_type.cache_ttl_s is not None
        if is_kept and job_type.name == SCRIPT:
            raise InvalidField(
                "a script leaves files and logs, which are not kept to be given again: "
                "leave out cache_ttl_s",
                field="cache_ttl_s",
            )
        known = self._cluster.job_types.get(job_type.name)
        await self._workers.save_job_type(job_type)
        if known is not None and known.cache_ttl_s is not None and not is_kept:
            await self._results.clear(job_type.name)
        self._dispatch.kick()
        return job_type

    def _check_target(self, job_type: JobType) -> None:
        if job_type.target == ORCHESTRATOR:
            return
        parts = _TARGET.fullmatch(job_type.target)
        if parts is None or ".." in parts[2]:
            raise InvalidField(
                f"target must be '{ORCHESTRATOR}' or an app and a path, like echo/run",
                field="target",
            )
        if parts[1] not in self._cluster.apps:
            raise InvalidField(
                f"target names app '{parts[1]}', which is not registered",
                field="target",
            )

    async def pause(self, name: str, is_paused: bool = True) -> JobType:
        """Let its tasks wait, or go on; what runs is not touched."""
        return await self._save(replace(self.get(name), is_paused=is_paused))

    async def change(self, name: str, **changes: Any) -> JobType:
        """Set `batch_limit` or `cache_ttl_s`; None takes it back."""
        return await self._save(replace(self.get(name), **changes))

    async def clear(self, name: str) -> int:
        """Cancel every waiting task of a type; how many there were."""
        self.get(name)
        unstored = self._cluster.unstored
        ids = self._cluster.scheduler.waiting_ids(name)
        ids = [task_id for task_id in ids if task_id not in unstored]
        count = 0
        for start in range(0, len(ids), _CLEAR_BATCH):
            count += len(await self._cancel(ids[start : start + _CLEAR_BATCH]))
        return count

    async def clear_results(self, name: str) -> int:
        """Forget the results that are kept of a type; how many there were."""
        self.get(name)
        return await self._results.clear(name)

    async def _cancel(self, ids: list[str]) -> set[str]:
        error = TaskError("cancelled", "the queue of its job type was cleared")
        waiting = self._cluster.scheduler.knows
        tasks = [self._cluster.tasks[i] for i in ids if i in self._cluster.tasks]
        return await self._settle.settle(
            Outcome(task.id, task.attempt, OutcomeKind.CANCELLED, error=error)
            for task in tasks
            if waiting(task.id)
        )

    async def delete(self, name: str) -> None:
        """Forget a type.

        Raises:
            NotFound, Conflict: unknown; tasks of it live, or a worker serves it.
        """
        job_type = self.get(name)
        live = sum(t.spec.job_type == name for t in self._cluster.tasks.values())
        if live:
            raise Conflict(f"{live} task(s) of '{name}' have not ended", tasks=live)
        serving = sorted(
            link.id
            for link in self._cluster.workers.values()
            if name in link.worker.spec.job_types
        )
        if serving:
            raise Conflict(
                f"worker(s) serve '{name}': stop them first", workers=serving
            )
        # Out of memory first: nothing of it may be accepted while it goes.
        self._cluster.drop_job_type(name)
        try:
            await self._store.delete_job_type(name)
            self._signals.written.tell(
                NameChanged("job_type_changed", name, is_removed=True)
            )
        except BaseException:
            self._cluster.set_job_type(job_type)
            raise
        if job_type.cache_ttl_s is not None:
            await self._results.clear(name)
