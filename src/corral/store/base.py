"""The seam between the manager and its truth: intent-named calls, no SQL outside.

Every method that changes tasks carries the leader's term: a deposed leader's call
changes nothing and raises NotLeader. Batch methods take any number of rows and run as
one statement; when that statement fails because of one row's data, the store bisects
the batch, so that only the culprit is refused (`Inserted.rejected`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from corral.core.access.audit import EVERYTHING as EVERYTHING
from corral.core.access.audit import AuditQuery as AuditQuery
from corral.core.access.audit import AuditReport as AuditReport
from corral.core.access.audit import AuditRow as AuditRow
from corral.core.access.key import Key
from corral.core.access.secret import Secret
from corral.core.access.share import Share, ShareUse
from corral.core.insight.event import Event as Event
from corral.core.insight.event import EventPage, EventQuery
from corral.core.insight.learned import Learned
from corral.core.insight.metric import (
    GpuSample,
    MetricSpan,
    MetricStep,
    TaskStep,
    TaskTotals,
)
from corral.core.insight.usage import UsageBy, UsageSpan, UsageStep
from corral.core.models.catalogue import CatalogueModel
from corral.core.models.model import KnownModel, Pin
from corral.core.nodes.gpu import Gpu
from corral.core.nodes.node import NodeRecord, Sample
from corral.core.nodes.worker import WorkerRecord
from corral.core.nodes.worker_type import WorkerType
from corral.core.tasks.app import App
from corral.core.tasks.job_type import JobType
from corral.core.tasks.outcome import LogChunk as LogChunk
from corral.core.tasks.outcome import Settlement
from corral.core.tasks.result_cache import KeptResult, KeptTotal
from corral.core.tasks.schedule import Schedule
from corral.core.tasks.task import Attempt, State, Task
from corral.core.tasks.task import TaskFilter as TaskFilter
from corral.core.tasks.webhook import Notice


@dataclass(frozen=True, slots=True)
class Inserted:
    """Outcome of one batch of submits, by task id.

    `existing` maps the id that was sent to the task already there (same id, or same
    owner and idempotency key). `rejected` maps ids to the database's complaint.
    """

    created: Mapping[str, int]
    existing: Mapping[str, Task] = field(default_factory=dict)
    rejected: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Placement:
    """Give attempt `attempt` of a queued task to a worker incarnation."""

    task_id: str
    attempt: int
    worker_id: str
    incarnation: str
    node_id: str


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Newest first. `next_cursor` is None on the last page."""

    tasks: tuple[Task, ...]
    total: int
    next_cursor: str | None


ARTIFACTS, CHECKPOINT = "artifacts", "checkpoint"


@dataclass(frozen=True, slots=True)
class KeptTree:
    """A folder kept for an attempt; `digest` names its manifest among the objects.

    `left_out` says in one line what of it could not be kept.
    """

    task_id: str
    kind: str
    attempt: int
    digest: str
    files: int
    size: int
    left_out: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Retention:
    """How long things are kept; readings raw, then thinned to minutes, then to hours.

    Counts of tasks go with the hours.
    """

    tasks_s: float
    events_s: float
    samples_s: float
    audit_s: float
    minutes_s: float = 7 * 86_400.0
    hours_s: float = 365 * 86_400.0


class TaskStore(Protocol):
    """Tasks: the hot path, then reads."""

    async def insert_tasks(self, term: int, tasks: Sequence[Task]) -> Inserted:
        """Store new tasks, `queued`, `assigned` or already `completed`, with a seq."""

    async def place_tasks(
        self, term: int, placements: Sequence[Placement], now: datetime
    ) -> Mapping[str, str]:
        """queued → assigned where attempt still matches; payload text by task id."""

    async def start_tasks(
        self, term: int, started: Sequence[tuple[str, int, datetime]]
    ) -> set[str]:
        """assigned → running for (task id, attempt, started at); ids changed."""

    async def settle_tasks(
        self, term: int, settlements: Sequence[Settlement]
    ) -> set[str]:
        """End attempts; ids whose row still had that attempt and was live.

        A settlement to `queued` raises the attempt by one and clears the worker.
        Every settlement but a completed one leaves a row in attempts.
        """

    async def discard_dead_letter(self, term: int, task_id: str) -> bool:
        """Take an ended task out of the dead letters; its record stays."""

    async def requeue_task(self, term: int, task_id: str, now: datetime) -> Task | None:
        """Terminal → queued: same id, attempt + 1, run + 1, counters at zero.

        None when the task does not exist or is not terminal.
        """

    async def get_task(self, task_id: str) -> Task | None: ...

    async def get_tasks(self, task_ids: Sequence[str]) -> Sequence[Task]:
        """Those that exist, in any order."""

    async def list_tasks(
        self, where: TaskFilter, limit: int, offset: int = 0, cursor: str | None = None
    ) -> TaskPage: ...

    async def count_tasks(self) -> Mapping[State, int]: ...

    async def live_tasks(self) -> Sequence[Task]:
        """Every task not yet terminal, in seq order, with payload left empty."""

    async def attempts(self, task_id: str) -> Sequence[Attempt]: ...


class OutputStore(Protocol):
    """Logs of tasks, and which trees of files are kept for whom."""

    async def add_logs(self, chunks: Sequence[LogChunk]) -> None:
        """Idempotent on (task_id, attempt, seq)."""

    async def logs(
        self,
        task_id: str,
        after: tuple[int, int] = (0, 0),
        limit: int = 1000,
        *,
        attempt: int | None = None,
        limit_bytes: int | None = None,
    ) -> Sequence[LogChunk]:
        """Chunks after (attempt, seq), in order; one at least when there is one."""

    async def log_end(
        self, task_id: str, attempt: int | None = None
    ) -> tuple[int, int] | None:
        """(attempt, seq) of the last chunk; None where there is none."""

    async def save_tree(self, tree: KeptTree) -> None:
        """Keep it, in place of the same attempt's; of checkpoints only the newest."""

    async def trees(self, task_id: str, kind: str) -> Sequence[KeptTree]:
        """By attempt, the oldest first."""

    async def forget_trees(self, task_id: str, kind: str) -> None: ...

    async def drop_trees(self) -> int:
        """Forget checkpoints of completed tasks, and what is of no task; how many."""

    async def kept_digests(self) -> set[str]:
        """The manifests of all kept trees."""

    async def payload_digests(self) -> set[str]:
        """Whatever looks like a digest in the payload of any task."""

    async def save_code(self, digest: str, owner: str, at: datetime) -> None:
        """Somebody sent this object to be run; who was first stays."""

    async def code(self, digests: Sequence[str]) -> set[str]:
        """Those of them that were sent to be run."""

    async def forget_code(self, digest: str) -> None: ...


class RegistryStore(Protocol):
    """Job types, apps, nodes, workers and worker types, each saved whole."""

    async def save_job_type(self, job_type: JobType) -> None: ...

    async def delete_job_type(self, name: str) -> None: ...

    async def job_types(self) -> Sequence[JobType]: ...

    async def save_app(self, app: App) -> None: ...

    async def delete_app(self, name: str) -> None: ...

    async def apps(self) -> Sequence[App]: ...

    async def save_node(self, node: NodeRecord) -> None: ...

    async def delete_node(self, node_id: str) -> None: ...

    async def nodes(self) -> Sequence[NodeRecord]: ...

    async def save_workers(self, several: Sequence[WorkerRecord]) -> None: ...

    async def delete_worker(self, worker_id: str) -> None: ...

    async def workers(self) -> Sequence[WorkerRecord]: ...

    async def save_worker_type(self, worker_type: WorkerType) -> None: ...

    async def delete_worker_type(self, name: str) -> None: ...

    async def worker_types(self) -> Sequence[WorkerType]: ...


class ModelStore(Protocol):
    """The catalogue, what was learned of models, and which are pinned where."""

    async def save_catalogue_model(self, model: CatalogueModel) -> None:
        """Add or replace what was told of it; of a known one, figures stay."""

    async def save_catalogue_figures(self, several: Sequence[CatalogueModel]) -> None:
        """Keep uses and measures of those that are there; nothing else changes."""

    async def delete_catalogue_model(self, name: str) -> None: ...

    async def catalogue(self) -> Sequence[CatalogueModel]: ...

    async def save_models(self, several: Sequence[KnownModel]) -> None:
        """Keep what is known of each; nothing else of a model's row changes."""

    async def models(self) -> Sequence[KnownModel]: ...

    async def save_pin(self, pin: Pin) -> None: ...

    async def delete_pin(self, worker_id: str, model: str) -> None: ...

    async def pins(self) -> Sequence[Pin]: ...


class QueueStore(Protocol):
    """Schedules, shares, and who is to be told of the end of tasks."""

    async def save_schedule(self, schedule: Schedule) -> None: ...

    async def delete_schedule(self, name: str) -> None: ...

    async def schedules(self) -> Sequence[Schedule]: ...

    async def advance_schedules(
        self, term: int, moves: Sequence[tuple[datetime, Schedule]]
    ) -> set[str]:
        """Save times, last task and note; names whose row had that `next_at` before."""

    async def save_share(self, share: Share) -> None: ...

    async def delete_share(self, name: str) -> None: ...

    async def shares(self) -> Sequence[Share]: ...

    async def save_share_uses(self, uses: Sequence[ShareUse]) -> None:
        """In place of what was there: what is not among them is forgotten."""

    async def share_uses(self) -> Sequence[ShareUse]: ...

    async def notices(self, task_ids: Sequence[str] | None = None) -> Sequence[Notice]:
        """Who is still to be told of the end of these tasks, or of any.

        Storing or requeueing a task that has webhooks makes its notices with it.
        """

    async def save_notice(self, notice: Notice) -> None:
        """Keep how often it was tried; nothing when its run is not owed any more."""

    async def drop_notices(self, told: Sequence[Notice]) -> None: ...


class EventStore(Protocol):
    """Events, alerts among them, and how far readers have come."""

    async def add_events(self, events: Sequence[Event]) -> None: ...

    async def events(self, after_seq: int = 0, limit: int = 100) -> Sequence[Event]:
        """Oldest first when `after_seq` > 0, else the newest `limit`, oldest first."""

    async def event_page(
        self, where: EventQuery, after_seq: int = 0, limit: int = 100
    ) -> EventPage:
        """The same of some events, with the place to go on from without a loss."""

    async def alerts(self, where: EventQuery, limit: int = 1000) -> Sequence[Event]:
        """Alerts, newest first."""

    async def acknowledge_alert(
        self, seq: int, by: str, at: datetime, note: str = ""
    ) -> Event | None:
        """Note that somebody has seen an alert; the first one to say so stays.

        The alert as it is then, None when there is none; a resolved one is left alone.
        """

    async def worsen_alert(
        self, seq: int, severity: str, title: str, data: Mapping[str, Any]
    ) -> None:
        """An open alert is worse than it was; what `data` does not name stays."""

    async def resolve_alerts(self, seqs: Sequence[int], at: datetime) -> None:
        """The cause of these alerts is gone; those resolved already are left alone."""

    async def cursor(self, name: str) -> int | None:
        """How far a reader of the events has come; None for one that never read."""

    async def save_cursor(self, name: str, seq: int) -> None:
        """It never goes back."""


class MetricStore(Protocol):
    """Readings and what is made of them; what was used, and what was learned."""

    async def save_beats(
        self,
        node_ids: Sequence[str],
        at: datetime,
        samples: Sequence[Sample],
        cards: Sequence[GpuSample] = (),
    ) -> None:
        """Stamp last_heartbeat of nodes and their workers; keep readings as history."""

    async def samples(
        self, node_id: str, since: datetime, limit: int = 1000
    ) -> Sequence[Sample]:
        """Newest first."""

    async def roll_up(self, now: datetime) -> None:
        """Thin readings and count ended tasks, as far as `now` allows.

        May be called at any time and again: nothing is counted twice or left out.
        """

    async def node_history(
        self, node_id: str, span: MetricSpan
    ) -> Sequence[MetricStep]:
        """Readings of NODE_METRICS by step, the oldest first; no step without any."""

    async def gpu_history(
        self, node_id: str, span: MetricSpan
    ) -> Sequence[tuple[Gpu, Sequence[MetricStep]]]:
        """The same of GPU_METRICS for each card with readings in that time."""

    async def cluster_history(self, span: MetricSpan) -> Sequence[MetricStep]:
        """CLUSTER_METRICS by step, as `core.metric.across` puts nodes together."""

    async def task_totals(self, begin: int, end: int) -> TaskTotals:
        """Tasks that ended from `begin` to `end` (epoch seconds, whole steps)."""

    async def task_history(self, span: MetricSpan) -> Sequence[TaskStep]:
        """The same by step, the oldest first; steps are multiples of MINUTES_S."""

    async def usage(
        self, by: UsageBy, label: str, span: UsageSpan
    ) -> Sequence[UsageStep]:
        """What was used by name and step; of a label, its values (`` for none)."""

    async def save_learned(self, rows: Sequence[Learned], at: datetime) -> None:
        """Keep these figures, in place of those of the same subjects."""

    async def learned(self, limit: int) -> Sequence[Learned]:
        """The latest so many, by subject."""

    async def forget_learned(self, before: datetime) -> None:
        """Drop what nothing was added to since."""


class AccessStore(Protocol):
    """Keys, secrets, and who asked for what."""

    async def save_key(self, key: Key) -> None: ...

    async def keys(self) -> Sequence[Key]: ...

    async def use_key(self, key_id: str, now: datetime) -> bool:
        """Spend one use of a valid limited key; false when none is left."""

    async def stamp_keys(self, used: Mapping[str, datetime]) -> None:
        """Note when these keys were last used; nothing else of them changes."""

    async def save_secret(self, secret: Secret) -> None: ...

    async def delete_secret(self, name: str) -> None: ...

    async def secrets(self) -> Sequence[Secret]: ...

    async def end_session(self, digest: str, until: datetime, now: datetime) -> None:
        """Remember that a session is over; forget those that would be by now."""

    async def ended_sessions(self) -> Mapping[str, datetime]:
        """Until when each would have been good, by its digest."""

    async def add_audit(self, rows: Sequence[AuditRow]) -> int:
        """Append, each row's hash chained to the one before; the seq of the last."""

    async def audit(
        self, limit: int = 100, where: AuditQuery = EVERYTHING
    ) -> Sequence[AuditRow]:
        """Newest first."""

    async def check_audit(self) -> AuditReport:
        """Look through the whole chain."""


class ResultStore(Protocol):
    """Results that may be given again."""

    async def save_results(
        self, rows: Sequence[KeptResult], now: datetime
    ) -> Mapping[str, int]:
        """Keep these, each key once; the size of each that was there, by its key."""

    async def find_results(self, keys: Sequence[str]) -> Mapping[str, KeptResult]:
        """Those that are kept, by key."""

    async def use_results(self, used: Mapping[str, datetime]) -> None:
        """Note when these were used last."""

    async def kept_results(self) -> Mapping[str, KeptTotal]:
        """How much is kept, by job type."""

    async def clear_results(self, job_type: str) -> int:
        """Forget all of a type; how many there were."""

    async def prune_results(self, since: Mapping[str, datetime]) -> int:
        """Forget what was made before the time of its type, or is of no such type."""

    async def trim_results(self, limit_bytes: int) -> int:
        """Forget those not used for longest, until the rest takes no more than that."""


class Store(Protocol):
    """PostgreSQL or its in-memory twin; `tests/contract/` holds both to this.

    Nine seams, and what concerns the whole database. Who needs one seam takes that.
    """

    tasks: TaskStore
    output: OutputStore
    registry: RegistryStore
    models: ModelStore
    queues: QueueStore
    events: EventStore
    metrics: MetricStore
    access: AccessStore
    results: ResultStore

    async def open(self) -> None:
        """Connect and bring the schema up to date (under an advisory lock)."""

    async def close(self) -> None: ...

    async def ping(self) -> None:
        """Raises StoreUnavailable when the database does not answer."""

    async def take_lead(self, holder: str, now: datetime) -> int:
        """Become leader; returns the new term."""

    async def term(self) -> int: ...

    async def prune(self, now: datetime, keep: Retention) -> Mapping[str, int]:
        """Delete what is past its time; rows deleted by table."""

    async def clear(self, term: int, keep: Sequence[JobType]) -> Mapping[str, int]:
        """Delete ended tasks with all of theirs, worker types, and job types.

        Job types are exactly `keep` then; a task a live one depends on stays.
        """
