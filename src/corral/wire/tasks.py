"""Tasks as they are asked for and as answers show them.

Accepted, in brief, whole, and why they wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict

from msgspec import UNSET, Raw, Struct, UnsetType

from corral.core.tasks.task import TERMINAL, State
from corral.wire.value import Known, Value

_TERMINAL = frozenset(str(state) for state in TERMINAL)


class TaskIn(Struct, forbid_unknown_fields=True):
    """What POST /tasks takes; `payload` and `job_type` are other words for the same."""

    task_type: str | None = None
    job_type: str | None = None
    parameters: Raw | UnsetType = UNSET
    payload: Raw | UnsetType = UNSET
    task_id: str | None = None
    model_name: str | None = None
    priority: int | str = 0
    timeout: float | None = None
    retries: int = 0
    run_after: str | float | None = None
    deadline: str | float | None = None
    idempotency_key: str | None = None
    labels: dict[str, str] = {}
    depends_on: list[str] = []
    overlap: str = "allowed"
    notify: str | list[str] = []
    node_labels: dict[str, str] = {}
    tolerates: list[str] = []
    group: str | None = None
    group_limit: int | None = None
    preemptible: bool = False
    resources: dict[str, Any] = {}
    gang: str | None = None
    gang_rank: int | None = None
    gang_size: int | None = None
    no_cache: bool = False
    profile: str | None = None
    only_on: str | None = None
    name: str | None = None


class TaskOptions(TypedDict, total=False):
    """What a submit may say beside type and parameters; the manager has defaults.

    `run_after` and `deadline` are a time or seconds from now, `timeout` is seconds.
    `notify` names URLs that are told when the task has ended. `node_labels` are those
    its node must have, `tolerates` taints (or their keys) it does not mind. Of a
    `group` at most `group_limit` are with workers at once. A `preemptible` task may be
    stopped for a critical one, and begins again. `resources` are what it takes of its
    node: `gpus` (2, or 0.5 of one), `gpu_memory_mb`, `gpu_kind`, `gpu_vendor`, `cpus`,
    `memory_mb`. The `gang_size` members of a `gang`, each with a `gang_rank` from 0,
    start together on as many nodes, or not at all. With `no_cache` it runs even where
    its result is kept from before. With `profile` it runs under a profiler, whose
    report is among its artifacts.
    """

    task_id: str
    model_name: str
    priority: int | Literal["low", "normal", "high", "critical"]
    timeout: float
    retries: int
    run_after: float | datetime | str
    deadline: float | datetime | str
    idempotency_key: str
    labels: Mapping[str, str]
    depends_on: Sequence[str]
    overlap: Literal["allowed", "never"]
    notify: str | Sequence[str]
    node_labels: Mapping[str, str]
    tolerates: Sequence[str]
    group: str
    group_limit: int
    preemptible: bool
    resources: Mapping[str, Any]
    gang: str
    gang_rank: int
    gang_size: int
    no_cache: bool
    profile: Literal["python", "torch", "memory"]
    only_on: str
    name: str


class Start(Value, frozen=True, kw_only=True):
    """When a task should start; four of five such tasks do from `low` to `high`."""

    at: Known[datetime] = None
    low: Known[datetime] = None
    high: Known[datetime] = None
    in_s: float = 0.0


class Estimate(Value, frozen=True, kw_only=True):
    """What such tasks take, seconds and MB; four of five lie from low to high.

    `runs` and `memory_runs` are how many of them that is learned from.
    """

    duration: float
    low: float = 0.0
    high: float = 0.0
    runs: int = 0
    memory_mb: float | None = None
    memory_high_mb: float | None = None
    memory_runs: int = 0


class Submitted(Value, frozen=True, kw_only=True):
    """A task the manager has accepted; its `task_id` is what to wait for."""

    task_id: str
    status: str
    estimated_wait_time: float | None = None
    assigned_worker: str | None = None
    created_at: datetime | None = None
    estimated_duration: float | None = None
    estimated_start: Start | None = None
    cached_from: str | None = None


class Refusal(Value, frozen=True, kw_only=True):
    """A task of a batch that was not accepted, by its place in the batch."""

    index: int
    code: str
    message: str


class Batch(Value, frozen=True, kw_only=True):
    """What became of many submits: None stands where a task was refused."""

    task_ids: list[str | None]
    errors: list[Refusal] = []
    accepted: int = 0
    refused: int = 0


class BulkError(Value, frozen=True, kw_only=True):
    """A task that something could not be done to."""

    task_id: str
    code: str
    message: str


class Bulk(Value, frozen=True, kw_only=True):
    """To how many tasks something was done; `errors` are the first it was not."""

    done: int
    refused: int = 0
    errors: list[BulkError] = []


class BulkPage(Bulk, frozen=True, kw_only=True):
    """One page of them; `next_cursor` is None when there are no more."""

    next_cursor: str | None = None


class TaskErrorInfo(Value, frozen=True, kw_only=True):
    kind: str
    message: str = ""
    traceback: str | None = None


class TaskInfo(Value, frozen=True, kw_only=True):
    """A task in brief, as lists show it."""

    task_id: str
    task_type: str
    status: str
    priority: int = 0
    attempt: int = 1
    worker_id: str | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    duration: float | None = None
    result: Any = None
    error: TaskErrorInfo | None = None
    labels: dict[str, str] = {}
    model_name: str | None = None
    name: str | None = None
    schedule: str | None = None
    scheduled_at: str | None = None

    @property
    def is_terminal(self) -> bool:
        return self.status in _TERMINAL

    @property
    def is_completed(self) -> bool:
        return self.status == State.COMPLETED


class Progress(Value, frozen=True, kw_only=True):
    fraction: Known[float] = None
    message: Known[str] = None


class WaitReason(Value, frozen=True, kw_only=True):
    """Why a task is not running yet: a stable word, and the same in words."""

    reason: str
    message: str = ""
    details: Known[dict[str, Any]] = None

    @property
    def text(self) -> str:
        return self.message or self.reason


class AttemptInfo(Value, frozen=True, kw_only=True):
    attempt: int
    outcome: str
    run: int = 1
    worker_id: str | None = None
    node_id: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error: TaskErrorInfo | None = None


class TaskDetail(TaskInfo, frozen=True, kw_only=True):
    """A task with everything known about it."""

    state: str = ""
    parameters: Any = None
    assigned_at: datetime | None = None
    timeout: float | None = None
    retries: int = 0
    tries: int = 0
    losses: int = 0
    run: int = 1
    run_after: datetime | None = None
    deadline: datetime | None = None
    idempotency_key: str | None = None
    depends_on: list[str] = []
    notify: list[str] = []
    node_labels: dict[str, str] = {}
    tolerates: list[str] = []
    group: str | None = None
    group_limit: int | None = None
    preemptible: bool = False
    resources: dict[str, Any] = {}
    gang: str | None = None
    gang_rank: int | None = None
    gang_size: int | None = None
    no_cache: bool = False
    profile: str | None = None
    only_on: str | None = None
    node_id: str | None = None
    assigned_worker: str | None = None
    progress: Progress | None = None
    waiting: WaitReason | None = None
    owner: str = ""
    estimated_duration: float | None = None
    estimate: Estimate | None = None
    estimated_start: Start | None = None
    dead_letter: str | None = None
    cached_from: str | None = None
    request_id: str | None = None
    attempts: list[AttemptInfo] = []


class TaskList(Value, frozen=True, kw_only=True):
    """Some tasks, newest first; `next_cursor` is None when there are no more."""

    tasks: list[TaskInfo]
    total: int = 0
    limit: int = 0
    offset: int = 0
    next_cursor: str | None = None


class Collected(Value, frozen=True, kw_only=True):
    """Which of some tasks have ended, which have not, which nobody knows."""

    tasks: list[TaskInfo]
    pending: list[str] = []
    unknown: list[str] = []


class CandidateCost(Value, frozen=True, kw_only=True):
    """Seconds on one worker: until it is free, to load a model, what dropping others
    for it costs later, and to run; `score` is the weight done a second.
    """

    wait_s: float = 0.0
    load_s: float = 0.0
    drop_s: float = 0.0
    run_s: float = 0.0
    total_s: float = 0.0
    score: float = 0.0


class Candidate(Value, frozen=True, kw_only=True):
    """A worker; `verdict` is what keeps the task from it, `free` when nothing does."""

    worker_id: str
    verdict: str
    node_id: str | None = None
    message: str = ""
    details: Known[dict[str, Any]] = None
    cost: CandidateCost | None = None


class Change(Value, frozen=True, kw_only=True):
    """What would start the task; `in_s` when that comes by itself, about."""

    change: str
    message: str = ""
    command: str | None = None
    in_s: float | None = None
    details: Known[dict[str, Any]] = None


class PlacementInfo(Value, frozen=True, kw_only=True):
    """Where an attempt was sent, and what decided that."""

    worker_id: str
    at: Known[datetime] = None
    node_id: Known[str] = None
    message: str = ""
    cost: Known[CandidateCost] = None
    load: str | None = None
    unload: list[str] = []
    together: int = 1
    passed_over: list[str] = []


class Explanation(Value, frozen=True, kw_only=True):
    """Why a task waits and what would start it, or why it ran where it did."""

    task_id: str
    status: str
    headline: str = ""
    reason: WaitReason | None = None
    ahead: int | None = None
    line: int | None = None
    estimated_start: Start | None = None
    estimated_duration: float | None = None
    estimate: Estimate | None = None
    changes: list[Change] = []
    candidates: list[Candidate] = []
    candidates_total: int = 0
    verdicts: dict[str, int] = {}
    placement: PlacementInfo | None = None
    attempts: list[AttemptInfo] = []
