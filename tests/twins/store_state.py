"""What the in-memory twin keeps, for its parts to share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

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
from corral.core.tasks.result_cache import KeptResult
from corral.core.tasks.schedule import Schedule
from corral.core.tasks.task import Attempt, Task
from corral.core.tasks.webhook import Notice
from corral.errors import NotLeader
from corral.store.base import Event, KeptTree, LogChunk
from corral.store.postgres.audit_chain import Chain
from corral.store.postgres.registry import Subject


class MemoryTables:
    def __init__(self) -> None:
        self._term = 0
        self._seq = 0
        self._tasks: dict[str, Task] = {}
        self._keyed: dict[tuple[str, str], str] = {}
        self._attempts: dict[str, dict[int, Attempt]] = {}
        self._logs: dict[tuple[str, int, int], LogChunk] = {}
        self._trees: dict[tuple[str, str, int], KeptTree] = {}
        self._job_types: dict[str, JobType] = {}
        self._apps: dict[str, App] = {}
        self._nodes: dict[str, NodeRecord] = {}
        self._workers: dict[str, WorkerRecord] = {}
        self._gone_workers: dict[str, str] = {}
        self._worker_types: dict[str, WorkerType] = {}
        self._keys: dict[str, Key] = {}
        self._secrets: dict[str, Secret] = {}
        self._models: dict[str, KnownModel] = {}
        self._pins: dict[tuple[str, str], Pin] = {}
        self._catalogue: dict[str, CatalogueModel] = {}
        self._shares: dict[str, Share] = {}
        self._share_uses: dict[str, ShareUse] = {}
        self._learned: dict[Subject, tuple[datetime, Learned]] = {}
        self._results: dict[str, tuple[datetime, KeptResult]] = {}
        self._events: list[Event] = []
        self._event_seq = 0
        self._cursors: dict[str, int] = {}
        self._schedules: dict[str, Schedule] = {}
        self._notices: dict[tuple[str, str], Notice] = {}
        self._audit: list[dict[str, Any]] = []
        self._chain = Chain()

    def _check_term(self, term: int) -> None:
        if term != self._term:
            raise NotLeader(
                f"term {term} is over, the current one is {self._term}", term=self._term
            )

    def _record(
        self, verb: str, at: datetime, ids: Collection[str], data: Mapping[str, Any]
    ) -> None:
        """One event for all that a batch did, none when it did nothing."""
        if ids:
            title = f"{len(ids)} {verb}"
            self._append(
                Event(f"tasks_{verb}", title, data=data, task_ids=tuple(ids), at=at)
            )

    def _append(self, event: Event) -> None:
        self._event_seq += 1
        self._events.append(replace(event, seq=self._event_seq))
