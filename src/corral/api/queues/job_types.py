"""/job-types: kinds of work, what they promise, how many wait, what is kept of them."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends, Request, Response
from msgspec import UNSET, Raw, UnsetType

from corral.api.deps import Caller, answer, caller, read
from corral.api.describe import described
from corral.api.queues import shapes
from corral.core.access.key import Scope
from corral.core.tasks.job_type import ORCHESTRATOR, JobType, QueueOrder
from corral.errors import InvalidField, InvalidJson
from corral.manager.cluster.state import Cluster
from corral.manager.tasks.result_cache import CacheFigures

router = APIRouter(prefix="/job-types", tags=["job types"])
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]
Counts: TypeAlias = tuple[Counter[str], Counter[str]]


@router.get("", summary="Kinds of work", **described(shapes.JobTypeListOut))
async def job_types(who: Reader) -> Response:
    cluster = who.manager.ctx.cluster
    counts = _counts(cluster)
    rows = sorted(cluster.job_types.values(), key=lambda j: j.name)
    return answer(shapes.JobTypeListOut([_shown(who, j, counts) for j in rows]))


def _counts(cluster: Cluster) -> Counts:
    """By type: tasks that wait, and those that workers have."""
    links = chain(cluster.workers.values(), cluster.inside.values())
    orders = (order for link in links for order in link.orders.values())
    tasks = (cluster.tasks.get(task_id) for order in orders for task_id in order.left)
    running = Counter(task.spec.job_type for task in tasks if task is not None)
    return cluster.scheduler.waiting_by_type(), running


def _shown(
    who: Caller, row: JobType, counts: Counts | None = None
) -> shapes.JobTypeOut:
    waiting, running = counts or _counts(who.manager.ctx.cluster)
    kept = None
    if row.cache_ttl_s is not None:
        kept = cache_out(who.manager.tasks.results.figures(row.name))
    return shapes.JobTypeOut(
        row.name,
        row.target,
        Raw(row.input_schema.encode()) if row.input_schema else None,
        Raw(row.output_schema.encode()) if row.output_schema else None,
        str(row.queue_order),
        waiting[row.name],
        row.is_paused,
        row.batch_limit,
        row.cache_ttl_s,
        kept,
        running[row.name],
    )


def cache_out(told: CacheFigures) -> shapes.CacheOut:
    rate, kept = told.hit_rate, told.kept
    rounded = None if rate is None else round(rate, 4)
    return shapes.CacheOut(told.hits, told.misses, rounded, kept.entries, kept.size)


@router.post(
    "",
    summary="Register a kind of work, or replace it",
    **described(
        shapes.JobTypeOut,
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
        created_at=who.manager.ctx.clock.now(),
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
    **described(shapes.JobTypeOut, errors=(404,)),
)
async def job_type(name: str, who: Reader) -> Response:
    row = who.manager.queues.job_types.get(name)
    return answer(_shown(who, row))


@router.patch(
    "/{name}",
    summary="Change how tasks of this kind are batched, or their results kept",
    **described(
        shapes.JobTypeOut,
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
    **described(shapes.JobTypeOut, errors=(404,)),
)
async def pause(name: str, who: Operator) -> Response:
    return await _pause(name, who, is_paused=True)


@router.post(
    "/{name}/resume",
    summary="Let tasks of this kind start again",
    **described(shapes.JobTypeOut, errors=(404,)),
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
    **described(shapes.CacheCleared, errors=(404,)),
)
async def clear_cache(name: str, who: Operator) -> Response:
    who.manager.queues.job_types.get(name)
    count = await who.manager.tasks.results.clear(name)
    who.note("job_type.clear_cache", name, forgotten=count)
    return answer(shapes.CacheCleared("no result is kept", name, count))
