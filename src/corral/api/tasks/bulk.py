"""/tasks/cancel and /tasks/requeue: act on every task that a filter finds.

One call takes one page of them, so that it ends soon however many there are; its
cursor leads to the next. Each task is acted on by the verb that acts on one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields, replace
from typing import Annotated

from fastapi import APIRouter, Query, Response

from corral.api.body import answer
from corral.api.caller import Caller
from corral.api.openapi import described
from corral.api.tasks.routes import Submitter, Where, Word
from corral.core.tasks.task import State, Task, TaskFilter
from corral.errors import CorralError, InvalidField
from corral.wire.tasks import BulkError, BulkPage

router = APIRouter(prefix="/tasks", tags=["tasks"])
MOST = 1000
_AT_ONCE = 32
_NAMED = 10
_LIVE = (State.QUEUED, State.ASSIGNED, State.RUNNING)
_ENDED = tuple(state for state in State if state not in _LIVE)
_FAILED = (State.FAILED, State.ERROR, State.TIMED_OUT)
Limit = Annotated[int, Query(ge=1, le=MOST)]


@router.post(
    "/cancel",
    summary="Cancel tasks that wait or run, of those GET /tasks would list",
    **described(BulkPage, errors=(422,)),
)
async def cancel(
    who: Submitter, where: Where, limit: Limit = MOST, cursor: Word = None
) -> Response:
    chosen = _among(where, _LIVE, _LIVE)
    out = await _each(who, chosen, limit, cursor, who.manager.tasks.cancel)
    who.note("task.cancel_many", f"{out.done} tasks", refused=out.refused)
    return answer(out)


@router.post(
    "/requeue",
    summary="Run ended tasks again, of those GET /tasks would list; without a "
    "status, those that failed",
    **described(BulkPage, errors=(422,)),
)
async def requeue(
    who: Submitter, where: Where, limit: Limit = MOST, cursor: Word = None
) -> Response:
    chosen = _among(where, _ENDED, _FAILED)
    out = await _each(who, chosen, limit, cursor, who.manager.tasks.requeue)
    who.note("task.requeue_many", f"{out.done} tasks", refused=out.refused)
    return answer(out)


def _among(
    where: TaskFilter, able: Sequence[State], unsaid: Sequence[State]
) -> TaskFilter | None:
    """The filter for what can be acted on; None when nothing can be both."""
    if not any(getattr(where, field.name) for field in fields(where)):
        raise InvalidField(
            "name which tasks: status, task_type, model_name, worker_id, label or "
            "search (status=queued,running is all that live)",
            field="status",
        )
    states = [s for s in where.states if s in able] if where.states else unsaid
    return replace(where, states=tuple(states)) if states else None


async def _each(
    who: Caller,
    where: TaskFilter | None,
    limit: int,
    cursor: str | None,
    act: Callable[[str, str | None], Awaitable[object]],
) -> BulkPage:
    if where is None:
        return BulkPage(done=0)
    if who.only_of is not None:
        # What is others' is not refused one by one: it is not meant.
        if where.owner not in (None, who.only_of):
            return BulkPage(done=0)
        where = replace(where, owner=who.only_of)
    page = await who.manager.tasks.reads.page(where, limit, 0, cursor)
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(task: Task) -> CorralError | None:
        async with room:
            try:
                await act(task.id, who.only_of)
            except CorralError as error:
                return error
        return None

    told = await asyncio.gather(*map(one, page.tasks))
    refused = [
        BulkError.of(error, task_id=task.id)
        for task, error in zip(page.tasks, told, strict=True)
        if error is not None
    ]
    done = len(page.tasks) - len(refused)
    return BulkPage(
        done=done,
        refused=len(refused),
        errors=refused[:_NAMED],
        next_cursor=page.next_cursor,
    )
