"""The call that asks why a task waits, or why it ran where it did."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from corral.client.calls.tasks import TaskRef, id_of
from corral.client.http.endpoint import Flow, get, segment
from corral.client.http.errors import decode
from corral.client.values import AttemptInfo, Estimate, Start, WaitReason
from corral.wire.value import Value


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
    details: Any = None
    cost: CandidateCost | None = None


class Change(Value, frozen=True, kw_only=True):
    """What would start the task; `in_s` when that comes by itself, about."""

    change: str
    message: str = ""
    command: str | None = None
    in_s: float | None = None
    details: Any = None


class PlacementInfo(Value, frozen=True, kw_only=True):
    """Where an attempt was sent, and what decided that."""

    worker_id: str
    at: datetime | None = None
    node_id: str | None = None
    message: str = ""
    cost: CandidateCost | None = None
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


def explain(task: TaskRef, *, limit: int | None = None) -> Flow[Explanation]:
    """Why a task waits and what would start it, or why it ran where it did.

    `limit` is how many candidate workers are told; 0 tells all.
    """
    response = yield get(f"/tasks/{segment(id_of(task))}/explain", limit=limit)
    return decode(response, Explanation)
