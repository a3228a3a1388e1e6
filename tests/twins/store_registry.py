"""Job types, nodes, workers and keys in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from corral.core.access.share import Share, ShareUse
from corral.core.models.catalogue import CatalogueModel
from corral.core.models.model import KnownModel, Pin
from corral.core.nodes.node import NodeRecord
from corral.core.nodes.worker import WorkerRecord
from corral.core.nodes.worker_type import WorkerType
from corral.core.tasks.app import App
from corral.core.tasks.job_type import JobType
from corral.core.tasks.result_cache import KeptResult, KeptTotal
from corral.core.tasks.schedule import Schedule
from corral.core.tasks.webhook import Notice
from corral.store.postgres.queues import schedule_of, schedule_row
from corral.store.text import clean_or_none
from tests.twins.store_state import MemoryTables


@dataclass(frozen=True, slots=True)
class MemoryRegistry:
    _tables: MemoryTables

    async def save_job_type(self, job_type: JobType) -> None:
        self._tables.job_types[job_type.name] = job_type

    async def job_types(self) -> Sequence[JobType]:
        return [self._tables.job_types[name] for name in sorted(self._tables.job_types)]

    async def delete_job_type(self, name: str) -> None:
        self._tables.job_types.pop(name, None)

    async def save_app(self, app: App) -> None:
        self._tables.apps[app.name] = app

    async def apps(self) -> Sequence[App]:
        return [self._tables.apps[name] for name in sorted(self._tables.apps)]

    async def delete_app(self, name: str) -> None:
        self._tables.apps.pop(name, None)

    async def save_node(self, node: NodeRecord) -> None:
        self._tables.nodes[node.id] = node

    async def delete_node(self, node_id: str) -> None:
        self._tables.nodes.pop(node_id, None)

    async def nodes(self) -> Sequence[NodeRecord]:
        return [self._tables.nodes[id_] for id_ in sorted(self._tables.nodes)]

    async def save_workers(self, several: Sequence[WorkerRecord]) -> None:
        for worker in several:
            row = replace(worker, error=clean_or_none(worker.error))
            self._tables.workers[worker.id] = row

    async def delete_worker(self, worker_id: str) -> None:
        worker = self._tables.workers.pop(worker_id, None)
        if worker is not None and worker.spec.gpus not in ("", "0"):
            self._tables.gone_workers[worker_id] = worker.spec.gpus

    async def workers(self) -> Sequence[WorkerRecord]:
        return [self._tables.workers[id_] for id_ in sorted(self._tables.workers)]

    async def save_worker_type(self, worker_type: WorkerType) -> None:
        self._tables.worker_types[worker_type.name] = worker_type

    async def delete_worker_type(self, name: str) -> None:
        self._tables.worker_types.pop(name, None)

    async def worker_types(self) -> Sequence[WorkerType]:
        return [
            self._tables.worker_types[name]
            for name in sorted(self._tables.worker_types)
        ]


# Schedules, shares and notices in memory.


@dataclass(frozen=True, slots=True)
class MemoryQueues:
    _tables: MemoryTables

    async def save_schedule(self, schedule: Schedule) -> None:
        # Through the row and back, as a database would give it.
        self._tables.schedules[schedule.name] = schedule_of(schedule_row(schedule))

    async def delete_schedule(self, name: str) -> None:
        self._tables.schedules.pop(name, None)

    async def schedules(self) -> Sequence[Schedule]:
        return [self._tables.schedules[name] for name in sorted(self._tables.schedules)]

    async def advance_schedules(
        self, term: int, moves: Sequence[tuple[datetime, Schedule]]
    ) -> set[str]:
        self._tables.check_term(term)
        moved: set[str] = set()
        for planned, schedule in moves:
            known = self._tables.schedules.get(schedule.name)
            if known is not None and known.next_at == planned:
                self._tables.schedules[schedule.name] = replace(
                    known,
                    next_at=schedule.next_at,
                    last_at=schedule.last_at,
                    last_task_id=schedule.last_task_id,
                    note=schedule_of(schedule_row(schedule)).note,
                )
                moved.add(schedule.name)
        return moved

    async def save_share(self, share: Share) -> None:
        self._tables.shares[share.name] = share

    async def delete_share(self, name: str) -> None:
        self._tables.shares.pop(name, None)

    async def shares(self) -> Sequence[Share]:
        return [self._tables.shares[name] for name in sorted(self._tables.shares)]

    async def save_share_uses(self, uses: Sequence[ShareUse]) -> None:
        self._tables.share_uses = {use.name: use for use in uses}

    async def share_uses(self) -> Sequence[ShareUse]:
        return [
            self._tables.share_uses[name] for name in sorted(self._tables.share_uses)
        ]

    async def notices(self, task_ids: Sequence[str] | None = None) -> Sequence[Notice]:
        wanted = None if task_ids is None else set(task_ids)
        return [
            self._tables.notices[place]
            for place in sorted(self._tables.notices)
            if wanted is None or place[0] in wanted
        ]

    async def save_notice(self, notice: Notice) -> None:
        known = self._tables.notices.get((notice.task_id, notice.url))
        if known is not None and known.run == notice.run:
            self._tables.notices[notice.task_id, notice.url] = notice

    async def drop_notices(self, told: Sequence[Notice]) -> None:
        for notice in told:
            known = self._tables.notices.get((notice.task_id, notice.url))
            if known is not None and known.run == notice.run:
                del self._tables.notices[notice.task_id, notice.url]


# The catalogue, models and pins in memory.


@dataclass(frozen=True, slots=True)
class MemoryModels:
    _tables: MemoryTables

    async def save_catalogue_model(self, model: CatalogueModel) -> None:
        known = self._tables.catalogue.get(model.name)
        self._tables.catalogue[model.name] = (
            _with_figures(model, known) if known else model
        )

    async def save_catalogue_figures(self, several: Sequence[CatalogueModel]) -> None:
        for model in several:
            if known := self._tables.catalogue.get(model.name):
                self._tables.catalogue[model.name] = _with_figures(known, model)

    async def delete_catalogue_model(self, name: str) -> None:
        self._tables.catalogue.pop(name, None)

    async def catalogue(self) -> Sequence[CatalogueModel]:
        return [self._tables.catalogue[name] for name in sorted(self._tables.catalogue)]

    async def save_models(self, several: Sequence[KnownModel]) -> None:
        self._tables.models |= {model.name: model for model in several}

    async def models(self) -> Sequence[KnownModel]:
        return [self._tables.models[name] for name in sorted(self._tables.models)]

    async def save_pin(self, pin: Pin) -> None:
        self._tables.pins[pin.worker_id, pin.model] = pin

    async def delete_pin(self, worker_id: str, model: str) -> None:
        self._tables.pins.pop((worker_id, model), None)

    async def pins(self) -> Sequence[Pin]:
        return [self._tables.pins[place] for place in sorted(self._tables.pins)]


def _with_figures(model: CatalogueModel, seen: CatalogueModel) -> CatalogueModel:
    return replace(
        model,
        uses=seen.uses,
        last_used_at=seen.last_used_at,
        measures=seen.measures,
    )


# Results kept to answer the same question again, in memory.


@dataclass(frozen=True, slots=True)
class MemoryResults:
    _tables: MemoryTables

    async def save_results(
        self, rows: Sequence[KeptResult], now: datetime
    ) -> Mapping[str, int]:
        replaced: dict[str, int] = {}
        for row in rows:
            if (known := self._tables.results.get(row.key)) is not None:
                replaced[row.key] = known[1].size
            self._tables.results[row.key] = (now, row)
        return replaced

    async def find_results(self, keys: Sequence[str]) -> Mapping[str, KeptResult]:
        return {
            key: self._tables.results[key][1]
            for key in keys
            if key in self._tables.results
        }

    async def use_results(self, used: Mapping[str, datetime]) -> None:
        for key, at in used.items():
            if key in self._tables.results:
                self._tables.results[key] = (at, self._tables.results[key][1])

    async def kept_results(self) -> Mapping[str, KeptTotal]:
        totals: dict[str, KeptTotal] = {}
        for _, row in self._tables.results.values():
            known = totals.get(row.job_type, KeptTotal())
            totals[row.job_type] = KeptTotal(known.entries + 1, known.size + row.size)
        return totals

    async def clear_results(self, job_type: str) -> int:
        rows = self._tables.results.items()
        return self._forget([k for k, (_, r) in rows if r.job_type == job_type])

    async def prune_results(self, since: Mapping[str, datetime]) -> int:
        def is_old(row: KeptResult) -> bool:
            return row.job_type not in since or row.made_at < since[row.job_type]

        return self._forget(
            [k for k, (_, r) in self._tables.results.items() if is_old(r)]
        )

    async def trim_results(self, limit_bytes: int) -> int:
        by_key = sorted(self._tables.results.items())
        total, old = 0, []
        for key, (_, row) in sorted(by_key, key=lambda i: i[1][0], reverse=True):
            total += row.size
            if total > limit_bytes:
                old.append(key)
        return self._forget(old)

    def _forget(self, keys: Collection[str]) -> int:
        for key in keys:
            del self._tables.results[key]
        return len(keys)
