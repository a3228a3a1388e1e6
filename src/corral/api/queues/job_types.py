"""/job-types: kinds of work, what they promise, how many wait, what is kept of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from msgspec import UNSET, Raw, UnsetType

from corral.api.body import answer, read
from corral.api.caller import Caller, caller
from corral.api.openapi import described
from corral.api.queues import shapes
from corral.core.access.key import Scope
from corral.core.tasks.job_type import ORCHESTRATOR, JobType, QueueOrder
from corral.errors import InvalidField, InvalidJson
from corral.manager.queues.job_types import JobTypeStatus
from corral.manager.tasks.result_cache import CacheFigures
from corral.wire.queues import CacheCleared, CacheInfo, JobTypeInfo, JobTypeList

router = APIRouter(prefix="/job-types", tags=["job types"])
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]


@router.get("", summary="Kinds of work", **described(JobTypeList))
async def job_types(who: Reader) -> Response:
    rows = who.manager.queues.job_types.all()
    return answer(JobTypeList(job_types=[_job_type(row) for row in rows]))


def _shown(who: Caller, row: JobType) -> JobTypeInfo:
    return _job_type(who.manager.queues.job_types.status(row))


def _job_type(status: JobTypeStatus) -> JobTypeInfo:
    row, kept = status.job_type, status.kept
    return JobTypeInfo(
        name=row.name,
        target=row.target,
        input_schema=Raw(row.input_schema.encode()) if row.input_schema else None,
        output_schema=Raw(row.output_schema.encode()) if row.output_schema else None,
        queue_order=str(row.queue_order),
        waiting=status.waiting,
        paused=row.is_paused,
        batch_limit=row.batch_limit,
        cache_ttl_s=row.cache_ttl_s,
        cache=None if kept is None else cache_out(kept),
        running=status.running,
    )


def cache_out(told: CacheFigures) -> CacheInfo:
    rate, kept = told.hit_rate, told.kept
    rounded = None if rate is None else round(rate, 4)
    return CacheInfo.of(told, hit_rate=rounded, entries=kept.entries, bytes=kept.size)


@router.post(
    "",
    summary="Register a kind of work, or replace it",
    **described(
        JobTypeInfo,
        body=shapes.JobTypeIn,
        status=201,
        errors=(400, 422),
        example={"name": "resize", "input_schema": {"type": "object"}},
    ),
)
async def add_job_type(request: Request, who: Operator) -> Response:
    said = await read(request, shapes.JobTypeIn)
    row = JobType(
        said.name,
        ORCHESTRATOR if said.target is None else said.target,
        input_schema=_schema(said.input_schema, "input_schema"),
        output_schema=_schema(said.output_schema, "output_schema"),
        created_at=who.manager.now(),
        queue_order=_order(said.queue_order),
        batch_limit=said.batch_limit,
        cache_ttl_s=said.cache_ttl_s,
    )
    row = await who.manager.queues.job_types.save(row)
    who.note("job_type.save", row.name)
    return answer(_shown(who, row), 201)


def _order(word: str) -> QueueOrder:
    try:
        return QueueOrder(word)
    except ValueError:
        words = ", ".join(QueueOrder)
        raise InvalidField(
            f"queue_order must be one of {words}", field="queue_order"
        ) from None


def _schema(raw: Raw | UnsetType, field: str) -> str | None:
    if isinstance(raw, UnsetType) or bytes(raw) == b"null":
        return None
    try:
        text = bytes(raw).decode()
    except UnicodeDecodeError as e:
        raise InvalidJson(f"{field} is not valid UTF-8: {e}") from e
    if not text.lstrip().startswith("{"):
        raise InvalidField(f"{field} must be a JSON schema (an object)", field=field)
    return text


@router.get(
    "/{name}",
    summary="One kind of work, and how many tasks of it wait",
    **described(JobTypeInfo, errors=(404,)),
)
async def job_type(name: str, who: Reader) -> Response:
    row = who.manager.queues.job_types.get(name)
    return answer(_shown(who, row))


@router.patch(
    "/{name}",
    summary="Change how tasks of this kind are batched, or their results kept",
    **described(
        JobTypeInfo,
        body=shapes.JobTypeChange,
        errors=(404, 422),
        example={"batch_limit": 8},
    ),
)
async def change(name: str, request: Request, who: Operator) -> Response:
    said = await read(request, shapes.JobTypeChange)
    told = {"batch_limit": said.batch_limit, "cache_ttl_s": said.cache_ttl_s}
    changes = {field: value for field, value in told.items() if value is not UNSET}
    if not changes:
        raise InvalidField(
            "nothing to change: give batch_limit or cache_ttl_s", field="batch_limit"
        )
    row = await who.manager.queues.job_types.change(name, **changes)
    who.note("job_type.change", name, **changes)
    return answer(_shown(who, row))


@router.delete(
    "/{name}",
    summary="Forget a kind of work nobody serves and no task waits for",
    **described(shapes.JobTypeGone, errors=(404, 409)),
)
async def delete_job_type(name: str, who: Operator) -> Response:
    await who.manager.queues.job_types.delete(name)
    who.note("job_type.delete", name)
    return answer(shapes.JobTypeGone("the job type is gone", name))


@router.post(
    "/{name}/pause",
    summary="Let tasks of this kind wait; what runs goes on",
    **described(JobTypeInfo, errors=(404,)),
)
async def pause(name: str, who: Operator) -> Response:
    return await _pause(name, who, is_paused=True)


@router.post(
    "/{name}/resume",
    summary="Let tasks of this kind start again",
    **described(JobTypeInfo, errors=(404,)),
)
async def resume(name: str, who: Operator) -> Response:
    return await _pause(name, who, is_paused=False)


async def _pause(name: str, who: Caller, *, is_paused: bool) -> Response:
    row = await who.manager.queues.job_types.pause(name, is_paused)
    who.note("job_type.pause" if is_paused else "job_type.resume", name)
    return answer(_shown(who, row))


@router.delete(
    "/{name}/queue",
    summary="Cancel every task of this kind that waits",
    **described(shapes.QueueCleared, errors=(404,)),
)
async def clear_queue(name: str, who: Operator) -> Response:
    count = await who.manager.queues.job_types.clear(name)
    who.note("job_type.clear", name, cancelled=count)
    return answer(shapes.QueueCleared("the queue is empty", name, count))


@router.delete(
    "/{name}/cache",
    summary="Forget the results that are kept of this kind",
    **described(CacheCleared, errors=(404,)),
)
async def clear_cache(name: str, who: Operator) -> Response:
    count = await who.manager.queues.job_types.clear_results(name)
    who.note("job_type.clear_cache", name, forgotten=count)
    return answer(
        CacheCleared(message="no result is kept", job_type=name, forgotten=count)
    )
