"""/tasks: submit, look, wait, cancel, run again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from corral.api.body import answer, decode
from corral.api.caller import Caller, caller
from corral.api.openapi import described
from corral.api.tasks import render, shapes
from corral.api.tasks.intake import Intake
from corral.core.access.key import Scope
from corral.core.tasks.job_type import NAME
from corral.core.tasks.options import NO_OPTIONS
from corral.core.tasks.task import State, TaskFilter, TaskSpec
from corral.errors import CorralError, InvalidField, TaskNotFound
from corral.wire.tasks import Batch, Refusal, TaskIn

router = APIRouter(prefix="/tasks", tags=["tasks"])
Submitter = Annotated[Caller, Depends(caller(Scope.SUBMIT))]
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
MAX_WAIT_S = 60.0
MAX_COLLECT = 1000
Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_S, description="seconds to wait")]
Word = Annotated[str | None, Query(max_length=256, pattern=r"^[^\x00]*$")]
_EXAMPLE = {"task_type": "echo", "parameters": {"message": "hi"}, "priority": "high"}


def intake_of(who: Caller, request: Request) -> Intake:
    manager = who.manager
    return Intake(
        now=manager.now(),
        owner=who.key.owner,
        task_limit=request.app.state.task_body_limit,
        default_timeout_s=manager.config.default_timeout_s,
        own=request.scope["corral_trace"].noted(NO_OPTIONS),
    )


@router.post(
    "",
    summary="Submit one task; with wait, answers like GET when it has ended",
    **described(
        shapes.TaskAccepted,
        or_else=shapes.TaskOut,
        body=TaskIn,
        status=201,
        errors=(400, 413, 422),
        example=_EXAMPLE,
    ),
)
async def submit(request: Request, who: Submitter, wait: Wait = 0.0) -> Response:
    key = request.headers.get("idempotency-key")
    spec = intake_of(who, request).one(await request.body(), key)
    await who.manager.outbound.webhooks.check(spec)
    result = (await who.manager.tasks.submit([spec]))[0]
    if isinstance(result, CorralError):
        raise result
    who.note("task.submit", result.task.id)
    status = 201 if result.is_new else 200
    if not wait:
        return answer(render.accepted(who.manager, result), status)
    return await _show(who, result.task.id, wait, status)


@router.post(
    "/batch",
    summary="Submit many tasks in one request",
    **described(
        Batch,
        body=shapes.BatchIn,
        status=201,
        errors=(400, 413, 422),
        example={"tasks": [_EXAMPLE]},
    ),
)
async def submit_many(request: Request, who: Submitter) -> Response:
    rows = intake_of(who, request).many(await request.body())
    rows = await who.manager.outbound.webhooks.judge(rows)
    specs = [row for row in rows if isinstance(row, TaskSpec)]
    results = iter(await who.manager.tasks.submit(specs))
    task_ids, errors = list[str | None](), list[Refusal]()
    for index, row in enumerate(rows):
        result = next(results) if isinstance(row, TaskSpec) else row
        if isinstance(result, CorralError):
            task_ids.append(None)
            errors.append(Refusal.of(result, index=index))
        else:
            task_ids.append(result.task.id)
    refused, accepted = len(errors), len(rows) - len(errors)
    who.note("task.submit_many", f"{accepted} tasks", refused=refused)
    out = Batch(task_ids=task_ids, errors=errors, accepted=accepted, refused=refused)
    return answer(out, 201)


@router.post(
    "/collect",
    summary="Results of many tasks, waiting for them if asked",
    **described(
        shapes.CollectOut,
        body=shapes.CollectIn,
        errors=(400, 422),
        example={"task_ids": ["..."], "wait": 10},
    ),
)
async def collect(request: Request, who: Reader) -> Response:
    wanted = decode(await request.body(), shapes.CollectIn)
    if len(wanted.task_ids) > MAX_COLLECT:
        raise InvalidField(
            f"at most {MAX_COLLECT} task_ids in one request", field="task_ids"
        )
    wait_s = min(max(wanted.wait, 0.0), MAX_WAIT_S)
    who.wait()
    found = await who.manager.tasks.reads.collect(wanted.task_ids, wait_s)
    live = set(found.pending)
    ended = [t for t in wanted.task_ids if t not in live]
    return answer(
        shapes.CollectOut(
            tasks=[render.brief(found.ended[t]) for t in ended if t in found.ended],
            pending=list(found.pending),
            unknown=[t for t in ended if t not in found.ended],
        )
    )


async def where(
    status: str | None = None,
    task_type: Word = None,
    worker_id: Word = None,
    label: Annotated[list[str] | None, Query(description="key:value")] = None,
    dead: bool | None = None,
    request_id: Word = None,
    schedule: Word = None,
    model_name: Word = None,
    search: Word = None,
) -> TaskFilter:
    """Which tasks a query means: of those that are listed, or acted upon together."""
    return TaskFilter(
        states=_states(status),
        job_type=task_type,
        worker_id=worker_id,
        labels=dict(_label(text) for text in label or ()),
        dead_letter=dead,
        model=model_name,
        request_id=request_id,
        schedule=schedule,
        text=search,
    )


Where = Annotated[TaskFilter, Depends(where)]


@router.get(
    "",
    summary="List tasks, newest first",
    **described(shapes.TaskListOut, errors=(422,)),
)
async def list_tasks(
    who: Reader,
    where: Where,
    results: Annotated[bool, Query(description="false leaves results out")] = True,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    offset: Annotated[int, Query(ge=0, le=1 << 31)] = 0,
    cursor: Word = None,
) -> Response:
    page = await who.manager.tasks.reads.page(where, limit, offset, cursor)
    return answer(
        shapes.TaskListOut(
            tasks=[render.brief(t, with_result=results) for t in page.tasks],
            total=page.total,
            limit=limit,
            offset=offset,
            next_cursor=page.next_cursor,
        )
    )


def _states(status: str | None) -> tuple[State, ...]:
    if status is None:
        return ()
    try:
        states = tuple(State(word) for word in status.split(","))
    except ValueError:
        words = ", ".join(State)
        raise InvalidField(f"status must be one of {words}", field="status") from None
    return (*states, State.ASSIGNED) if State.QUEUED in states else states


def _label(text: str) -> tuple[str, str]:
    key, colon, value = text.partition(":")
    if not colon or "\x00" in text:
        raise InvalidField("label must read key:value", field="label")
    return key, value


def id_of(task_id: str) -> str:
    """What can be no id is not looked for: the store need not take any text."""
    if not NAME.fullmatch(task_id):
        raise TaskNotFound(f"no task {task_id[:200]!r}", task_id=task_id[:200])
    return task_id


async def _show(
    who: Caller, task_id: str, wait_s: float, status: int = 200
) -> Response:
    who.wait()
    task, attempts = await who.manager.tasks.reads.whole(task_id, wait_s)
    return answer(render.full(who.manager, task, attempts), status)


@router.get(
    "/{task_id}",
    summary="One task; with wait, answers when it has ended",
    **described(shapes.TaskOut, errors=(404, 422)),
)
async def get_task(task_id: str, who: Reader, wait: Wait = 0.0) -> Response:
    return await _show(who, id_of(task_id), wait)


@router.delete(
    "/{task_id}",
    summary="Cancel a task; a running one is stopped",
    **described(shapes.TaskEnded, errors=(404, 409)),
)
async def delete(task_id: str, who: Submitter) -> Response:
    await who.manager.tasks.cancel(id_of(task_id), who.only_of)
    who.note("task.cancel", task_id)
    return answer(shapes.TaskEnded("the task is cancelled", task_id, "cancelled"))


@router.post(
    "/{task_id}/cancel",
    summary="The same as DELETE",
    **described(shapes.TaskEnded, errors=(404, 409)),
)
async def cancel(task_id: str, who: Submitter) -> Response:
    return await delete(task_id, who)


@router.post(
    "/{task_id}/requeue",
    summary="Run an ended task again under the same id",
    **described(shapes.TaskOut, errors=(404, 409)),
)
async def requeue(task_id: str, who: Submitter) -> Response:
    task = await who.manager.tasks.requeue(id_of(task_id), who.only_of)
    who.note("task.requeue", task_id)
    attempts = await who.manager.tasks.reads.attempts(task)
    return answer(render.full(who.manager, task, attempts))
