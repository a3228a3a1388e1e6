"""Job types, nodes, workers and keys in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from operator import itemgetter

from corral.core.access.key import Key
from corral.core.access.secret import Secret
from corral.core.access.share import Share, ShareUse
from corral.core.insight.learned import Learned
from corral.core.models.catalogue import CatalogueModel
from corral.core.models.model import KnownModel, Pin
from corral.core.nodes.node import NodeRecord
from corral.core.nodes.worker import WorkerRecord
from corral.core.nodes.worker_type import WorkerType
from corral.core.tasks.app import App
from corral.core.tasks.job_type import JobType
from corral.core.tasks.result_cache import KeptResult, KeptTotal
from corral.core.tasks.schedule import Schedule
from corral.core.tasks.task import Task
from corral.core.tasks.webhook import Notice
from corral.store.postgres.registry import subject_of
from corral.store.postgres.schedules import schedule_of, schedule_row
from corral.store.text import clean_or_none
from tests.twins.store_state import MemoryTables


class MemoryRegistry(MemoryTables):
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

    async def save_node(self, node: NodeRecord) -> None:
        self._nodes[node.id] = node

    async def delete_node(self, node_id: str) -> None:
        self._nodes.pop(node_id, None)

    async def nodes(self) -> Sequence[NodeRecord]:
        return [self._nodes[id_] for id_ in sorted(self._nodes)]

    async def save_worker(self, worker: WorkerRecord) -> None:
        self._workers[worker.id] = replace(worker, error=clean_or_none(worker.error))

    async def save_workers(self, several: Sequence[WorkerRecord]) -> None:
        for worker in several:
            await self.save_worker(worker)

    async def delete_worker(self, worker_id: str) -> None:
        worker = self._workers.pop(worker_id, None)
        if worker is not None and worker.spec.gpus not in ("", "0"):
            self._gone_workers[worker_id] = worker.spec.gpus

    async def workers(self) -> Sequence[WorkerRecord]:
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


# Schedules and notices in memory.


class MemorySchedules(MemoryTables):
    async def save_schedule(self, schedule: Schedule) -> None:
        # Through the row and back, as a database would give it.
        self._schedules[schedule.name] = schedule_of(schedule_row(schedule))

    async def delete_schedule(self, name: str) -> None:
        self._schedules.pop(name, None)

    async def schedules(self) -> Sequence[Schedule]:
        return [self._schedules[name] for name in sorted(self._schedules)]

    async def advance_schedules(
        self, term: int, moves: Sequence[tuple[datetime, Schedule]]
    ) -> set[str]:
        self._check_term(term)
        moved: set[str] = set()
        for planned, schedule in moves:
            known = self._schedules.get(schedule.name)
            if known is not None and known.next_at == planned:
                self._schedules[schedule.name] = replace(
                    known,
                    next_at=schedule.next_at,
                    last_at=schedule.last_at,
                    last_task_id=schedule.last_task_id,
                    note=schedule_of(schedule_row(schedule)).note,
                )
                moved.add(schedule.name)
        return moved

    async def notices(self, task_ids: Sequence[str] | None = None) -> Sequence[Notice]:
        wanted = None if task_ids is None else set(task_ids)
        return [
            self._notices[place]
            for place in sorted(self._notices)
            if wanted is None or place[0] in wanted
        ]

    async def save_notice(self, notice: Notice) -> None:
        known = self._notices.get((notice.task_id, notice.url))
        if known is not None and known.run == notice.run:
            self._notices[notice.task_id, notice.url] = notice

    async def drop_notices(self, told: Sequence[Notice]) -> None:
        for notice in told:
            known = self._notices.get((notice.task_id, notice.url))
            if known is not None and known.run == notice.run:
                del self._notices[notice.task_id, notice.url]

    def _note(self, task: Task) -> None:
        """Whoever is to be told of this run's end is owed that from now on."""
        for url in task.spec.options.notify:
            self._notices[task.id, url] = Notice(task.id, url, task.run)


# Shares and their use in memory.


class MemoryShares(MemoryTables):
    async def save_share(self, share: Share) -> None:
        self._shares[share.name] = share

    async def delete_share(self, name: str) -> None:
        self._shares.pop(name, None)

    async def shares(self) -> Sequence[Share]:
        return [self._shares[name] for name in sorted(self._shares)]

    async def save_share_uses(self, uses: Sequence[ShareUse]) -> None:
        self._share_uses = {use.name: use for use in uses}

    async def share_uses(self) -> Sequence[ShareUse]:
        return [self._share_uses[name] for name in sorted(self._share_uses)]


# What was learned of tasks and workers, in memory.


class MemoryLearned(MemoryTables):
    async def save_learned(self, rows: Sequence[Learned], at: datetime) -> None:
        self._learned |= {subject_of(row): (at, row) for row in rows}

    async def learned(self, limit: int) -> Sequence[Learned]:
        every = sorted(self._learned.values(), key=itemgetter(0), reverse=True)
        return sorted((row for _, row in every[:limit]), key=subject_of)

    async def forget_learned(self, before: datetime) -> None:
        self._learned = {
            subject: kept
            for subject, kept in self._learned.items()
            if kept[0] >= before
        }


# Models and pins in memory.


class MemoryModels(MemoryTables):
    async def save_models(self, several: Sequence[KnownModel]) -> None:
        self._models |= {model.name: model for model in several}

    async def models(self) -> Sequence[KnownModel]:
        return [self._models[name] for name in sorted(self._models)]

    async def save_pin(self, pin: Pin) -> None:
        self._pins[pin.worker_id, pin.model] = pin

    async def delete_pin(self, worker_id: str, model: str) -> None:
        self._pins.pop((worker_id, model), None)

    async def pins(self) -> Sequence[Pin]:
        return [self._pins[place] for place in sorted(self._pins)]


# The catalogue of models in memory.


class MemoryCatalogue(MemoryTables):
    async def save_catalogue_model(self, model: CatalogueModel) -> None:
        known = self._catalogue.get(model.name)
        self._catalogue[model.name] = _with_figures(model, known) if known else model

    async def save_catalogue_figures(self, several: Sequence[CatalogueModel]) -> None:
        for model in several:
            if known := self._catalogue.get(model.name):
                self._catalogue[model.name] = _with_figures(known, model)

    async def delete_catalogue_model(self, name: str) -> None:
        self._catalogue.pop(name, None)

    async def catalogue(self) -> Sequence[CatalogueModel]:
        return [self._catalogue[name] for name in sorted(self._catalogue)]


def _with_figures(model: CatalogueModel, seen: CatalogueModel) -> CatalogueModel:
    return replace(
        model,
        uses=seen.uses,
        last_used_at=seen.last_used_at,
        measures=seen.measures,
    )


# Results kept to answer the same question again, in memory.


class MemoryResults(MemoryTables):
    async def save_results(
        self, rows: Sequence[KeptResult], now: datetime
    ) -> Mapping[str, int]:
        replaced: dict[str, int] = {}
        for row in rows:
            if (known := self._results.get(row.key)) is not None:
                replaced[row.key] = known[1].size
            self._results[row.key] = (now, row)
        return replaced

    async def find_results(self, keys: Sequence[str]) -> Mapping[str, KeptResult]:
        return {key: self._results[key][1] for key in keys if key in self._results}

    async def use_results(self, used: Mapping[str, datetime]) -> None:
        for key, at in used.items():
            if key in self._results:
                self._results[key] = (at, self._results[key][1])

    async def kept_results(self) -> Mapping[str, KeptTotal]:
        totals: dict[str, KeptTotal] = {}
        for _, row in self._results.values():
            known = totals.get(row.job_type, KeptTotal())
            totals[row.job_type] = KeptTotal(known.entries + 1, known.size + row.size)
        return totals

    async def clear_results(self, job_type: str) -> int:
        rows = self._results.items()
        return self._forget([k for k, (_, r) in rows if r.job_type == job_type])

    async def prune_results(self, since: Mapping[str, datetime]) -> int:
        def is_old(row: KeptResult) -> bool:
            return row.job_type not in since or row.made_at < since[row.job_type]

        return self._forget([k for k, (_, r) in self._results.items() if is_old(r)])

    async def trim_results(self, limit_bytes: int) -> int:
        by_key = sorted(self._results.items())
        total, old = 0, []
        for key, (_, row) in sorted(by_key, key=lambda i: i[1][0], reverse=True):
            total += row.size
            if total > limit_bytes:
                old.append(key)
        return self._forget(old)

    def _forget(self, keys: Collection[str]) -> int:
        for key in keys:
            del self._results[key]
        return len(keys)
