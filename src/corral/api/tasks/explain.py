"""/tasks/{id}/explain: why a task waits, what would start it, why it ran there.

How the answer is filled; the scheduler finds the reasons.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Response

from corral.api.body import answer
from corral.api.openapi import described
from corral.api.tasks.render import attempt, estimate, start_out, status_of
from corral.api.tasks.routes import Reader, id_of
from corral.api.tasks.shapes import AttemptOut
from corral.manager.tasks.explain import Explained
from corral.scheduler.explain.values import (
    PastPlacement,
    Remedy,
    Terms,
    WorkerCandidate,
)
from corral.wire.tasks import (
    Candidate,
    CandidateCost,
    Change,
    Explanation,
    PlacementInfo,
    WaitReason,
)

router = APIRouter(prefix="/tasks", tags=["tasks"])
Most = Annotated[
    int, Query(ge=0, le=1_000_000, description="candidates told at most; 0: all")
]


class ExplainOut(Explanation, frozen=True, kw_only=True):
    attempts: list[AttemptOut]  # type: ignore[assignment]


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
        reason=WaitReason.of(reason) if reason else None,
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


def _change(change: Remedy) -> Change:
    return Change.of(change, change=change.kind, details=dict(change.details))


def _candidate(candidate: WorkerCandidate) -> Candidate:
    return Candidate.of(
        candidate,
        node_id=candidate.node_id or None,
        details=dict(candidate.details),
        cost=_terms(candidate.terms) if candidate.terms else None,
    )


def _terms(terms: Terms) -> CandidateCost:
    return CandidateCost(
        wait_s=round(terms.wait_s, 3),
        load_s=round(terms.load_s, 3),
        drop_s=round(terms.drop_s, 3),
        run_s=round(terms.run_s, 3),
        total_s=round(terms.total_s, 3),
        score=terms.score,
    )


def _placement(placed: PastPlacement) -> PlacementInfo:
    at = datetime.fromtimestamp(placed.at, UTC)
    return PlacementInfo.of(placed, at=at, cost=_terms(placed.terms))
