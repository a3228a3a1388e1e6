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
from corral.core.insight.metric import (
    HOURS_S,
    MINUTES_S,
    GpuSample,
    MetricStep,
    TaskTotals,
)
from corral.core.models.catalogue import CatalogueModel
from corral.core.models.model import KnownModel, Pin
from corral.core.nodes.gpu import Gpu
from corral.core.nodes.node import NodeRecord, Sample
from corral.core.nodes.worker import WorkerRecord
from corral.core.nodes.worker_type import WorkerType
from corral.core.tasks.app import App
from corral.core.tasks.job_type import JobType
from corral.core.tasks.result_cache import KeptResult
from corral.core.tasks.schedule import Schedule
from corral.core.tasks.task import Attempt, Task
from corral.core.tasks.webhook import Notice
from corral.store.base import Event, KeptTree, LogChunk
from corral.store.postgres.audit_chain import Chain, begin
from corral.store.postgres.errors import check_term
from corral.store.postgres.metrics import Subject

AUDIT_KEY = b"of the twin"
STEPS = (MINUTES_S, HOURS_S)
# A node, or a node's card.
MeasuredBy = tuple[str, str | None]


class MemoryTables:
    def __init__(self) -> None:
        self.term = 0
        self.seq = 0
        self.tasks: dict[str, Task] = {}
        self.keyed: dict[tuple[str, str], str] = {}
        self.attempts: dict[str, dict[int, Attempt]] = {}
        self.logs: dict[tuple[str, int, int], LogChunk] = {}
        self.trees: dict[tuple[str, str, int], KeptTree] = {}
        self.code: dict[str, tuple[str, datetime]] = {}
        self.job_types: dict[str, JobType] = {}
        self.apps: dict[str, App] = {}
        self.nodes: dict[str, NodeRecord] = {}
        self.workers: dict[str, WorkerRecord] = {}
        self.gone_workers: dict[str, str] = {}
        self.worker_types: dict[str, WorkerType] = {}
        self.keys: dict[str, Key] = {}
        self.secrets: dict[str, Secret] = {}
        self.ended_sessions: dict[str, datetime] = {}
        self.models: dict[str, KnownModel] = {}
        self.pins: dict[tuple[str, str], Pin] = {}
        self.catalogue: dict[str, CatalogueModel] = {}
        self.shares: dict[str, Share] = {}
        self.share_uses: dict[str, ShareUse] = {}
        self.learned: dict[Subject, tuple[datetime, Learned]] = {}
        self.results: dict[str, tuple[datetime, KeptResult]] = {}
        self.events: list[Event] = []
        self.event_seq = 0
        self.cursors: dict[str, int] = {}
        self.schedules: dict[str, Schedule] = {}
        self.notices: dict[tuple[str, str], Notice] = {}
        self.audit: list[dict[str, Any]] = []
        self.chain = begin(Chain(), AUDIT_KEY)
        self.samples: dict[tuple[str, datetime], Sample] = {}
        self.cards: dict[tuple[str, str, datetime], GpuSample] = {}
        self.gpus: dict[tuple[str, str], Gpu] = {}
        self.thinned: dict[int, dict[tuple[MeasuredBy, int], MetricStep]] = {
            step_s: {} for step_s in STEPS
        }
        self.marks = dict.fromkeys(STEPS, 0)
        self.counts: dict[int, TaskTotals] = {}
        self.waiting: dict[int, int] = {}
        self.counted = 0

    def check_term(self, term: int) -> None:
        check_term(term, self.term)

    def note(self, task: Task) -> None:
        """Whoever is to be told of this run's end is owed that from now on."""
        for url in task.spec.options.notify:
            self.notices[task.id, url] = Notice(task.id, url, task.run)

    def record(
        self, verb: str, at: datetime, ids: Collection[str], data: Mapping[str, Any]
    ) -> None:
        """One event for all that a batch did, none when it did nothing."""
        if ids:
            title = f"{len(ids)} {verb}"
            self.append(
                Event(f"tasks_{verb}", title, data=data, task_ids=tuple(ids), at=at)
            )

    def append(self, event: Event) -> None:
        self.event_seq += 1
        self.events.append(replace(event, seq=self.event_seq))
