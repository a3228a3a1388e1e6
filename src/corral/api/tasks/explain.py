"""/tasks/{id}/explain: why a task waits, what would start it, why it ran there.

Shapes (docs/design/wire.md) and how they are filled; the scheduler finds the reasons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from msgspec import Struct

from corral.api.body import answer
from corral.api.openapi import described
from corral.api.tasks.render import attempt, estimate, start_out, status_of
from corral.api.tasks.routes import Reader, id_of
from corral.api.tasks.shapes import AttemptOut, EstimateOut, StartOut, WaitingOut
from corral.manager.tasks.explain import Explained
from corral.scheduler.explain.values import (
    PastPlacement,
    Remedy,
    Terms,
    WorkerCandidate,
)

router = APIRouter(prefix="/tasks", tags=["tasks"])
Most = Annotated[
    int, Query(ge=0, le=1_000_000, description="candidates told at most; 0: all")
]


class TermsOut(Struct):
    """Seconds; `score` is what decides between tasks: weight done a second."""

    wait_s: float
    load_s: float
    drop_s: float
    run_s: float
    total_s: float
    score: float


class ChangeOut(Struct):
    change: str
    message: str
    command: str | None
    in_s: float | None
    details: Mapping[str, Any]


class CandidateOut(Struct):
    worker_id: str
    node_id: str | None
    verdict: str
    message: str
    details: Mapping[str, Any]
    cost: TermsOut | None


class PlacementOut(Struct):
    at: datetime
    worker_id: str
    node_id: str
    message: str
    cost: TermsOut
    load: str | None
    unload: Sequence[str]
    together: int
    passed_over: Sequence[str]


class ExplainOut(Struct):
    task_id: str
    status: str
    headline: str
    reason: WaitingOut | None
    ahead: int | None
    line: int | None
    estimated_start: StartOut | None
    estimated_duration: float | None
    estimate: EstimateOut | None
    changes: list[ChangeOut]
    candidates: list[CandidateOut]
    candidates_total: int
    verdicts: dict[str, int]
    placement: PlacementOut | None
    attempts: list[AttemptOut]


@router.get(
    "/{task_id}/explain",
    summary="Why a task waits and what would start it, or why it ran where it did",
    **described(ExplainOut, errors=(404, 422)),
)
async def explain(task_id: str, who: Reader, limit: Most = 20) -> Response:
    told = await who.manager.explain.tell(id_of(task_id), is_all=not limit)
    return answer(explained(told, limit))


def explained(found: Explained, most: int) -> ExplainOut:
    """`most` is how many candidates are told; 0 tells all."""
    told, task, reason = found.explanation, found.task, found.explanation.reason
    verdicts = Counter(candidate.verdict for candidate in told.candidates)
    return ExplainOut(
        task_id=task.id,
        status=status_of(task.state),
        headline=found.headline,
        reason=(
            WaitingOut(reason.reason, reason.message, reason.details)
            if reason
            else None
        ),
        ahead=told.ahead if reason else None,
        line=told.line if reason else None,
        estimated_start=start_out(told.start, found.now),
        estimated_duration=told.run_s,
        estimate=estimate(found.run, found.memory),
        changes=[_change(change) for change in told.changes],
        candidates=[_candidate(c) for c in told.candidates[: most or None]],
        candidates_total=max(len(told.candidates), told.workers),
        verdicts=dict(verdicts.most_common()),
        placement=_placement(told.placement) if told.placement else None,
        attempts=[attempt(row) for row in found.attempts],
    )


def _change(change: Remedy) -> ChangeOut:
    return ChangeOut(
        change.kind, change.message, change.command, change.in_s, change.details
    )


def _candidate(candidate: WorkerCandidate) -> CandidateOut:
    return CandidateOut(
        candidate.worker_id,
        candidate.node_id or None,
        candidate.verdict,
        candidate.message,
        candidate.details,
        _terms(candidate.terms) if candidate.terms else None,
    )


def _terms(terms: Terms) -> TermsOut:
    return TermsOut(
        round(terms.wait_s, 3),
        round(terms.load_s, 3),
        round(terms.drop_s, 3),
        round(terms.run_s, 3),
        round(terms.total_s, 3),
        terms.score,
    )


def _placement(placed: PastPlacement) -> PlacementOut:
    return PlacementOut(
        datetime.fromtimestamp(placed.at, UTC),
        placed.worker_id,
        placed.node_id,
        placed.message,
        _terms(placed.terms),
        placed.load,
        placed.unload,
        placed.together,
        placed.passed_over,
    )
