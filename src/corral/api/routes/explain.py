"""/tasks/{id}/explain: why a task waits, what would start it, why it ran there."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from corral.api.deps import answer
from corral.api.describe import described
from corral.api.explain_model import ExplainOut, explained
from corral.api.routes.tasks import Reader, find
from corral.manager.tasks.explain import explain_task

router = APIRouter(prefix="/tasks", tags=["tasks"])
Most = Annotated[
    int, Query(ge=0, le=1_000_000, description="candidates told at most; 0: all")
]


@router.get(
    "/{task_id}/explain",
    summary="Why a task waits and what would start it, or why it ran where it did",
    **described(ExplainOut, errors=(404, 422)),
)
async def explain(task_id: str, who: Reader, limit: Most = 20) -> Response:
    manager = who.manager
    task = await find(who, task_id)
    attempts = await manager.store.attempts(task.id)
    told = explain_task(manager, task, is_all=not limit)
    return answer(explained(manager.cluster, told, attempts, limit))
