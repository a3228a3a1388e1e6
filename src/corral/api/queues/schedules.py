"""/schedules: tasks that are submitted again and again."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Request, Response
from msgspec import Raw

from corral.api.body import answer, decode, read
from corral.api.caller import Caller, caller
from corral.api.openapi import described
from corral.api.queues import shapes
from corral.api.tasks.render import asked, status_of
from corral.api.tasks.routes import intake_of
from corral.core.access.key import Scope
from corral.core.tasks.job_type import check_name
from corral.core.tasks.options import NO_OPTIONS
from corral.core.tasks.schedule import (
    MissedPolicy,
    OverlapPolicy,
    Schedule,
)
from corral.errors import InvalidField
from corral.manager.cron import Cron
from corral.wire.tasks import TaskIn

router = APIRouter(prefix="/schedules", tags=["schedules"])
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]
# What one task can have and a row of them cannot.
_SINGLE = ("task_id", "idempotency_key", "depends_on", "run_after")
UPCOMING = 5
_LONGEST_DEADLINE_S = 30 * 86_400.0
W = TypeVar("W", bound=StrEnum)
_EXAMPLE = {
    "name": "nightly",
    "cron": "0 3 * * *",
    "timezone": "Europe/Berlin",
    "task": {"task_type": "echo", "parameters": {"message": "good morning"}},
}


@router.get("", summary="List schedules", **described(shapes.ScheduleListOut))
async def list_schedules(who: Reader) -> Response:
    rows = who.manager.queues.schedules.all()
    return answer(shapes.ScheduleListOut([_shown(row) for row in rows]))


@router.post(
    "",
    summary="Submit a task at the times of a cron line",
    **described(
        shapes.ScheduleOut,
        body=shapes.ScheduleIn,
        status=201,
        errors=(400, 409, 413, 422),
        example=_EXAMPLE,
    ),
)
async def add(request: Request, who: Operator) -> Response:
    said = await read(request, shapes.ScheduleIn)
    task = decode(bytes(said.task), TaskIn)
    for field in _SINGLE:
        if getattr(task, field):
            raise InvalidField(f"a scheduled task has no {field}", field=field)
    deadline_s = _deadline(task.deadline)
    # What it will submit comes with no request.
    spec = replace(intake_of(who, request), own=NO_OPTIONS).one(bytes(said.task))
    await who.manager.outbound.webhooks.check(spec)
    schedule = Schedule(
        name=check_name(said.name, "name") if said.name is not None else "",
        cron=" ".join(said.cron.split()),
        task=spec,
        timezone=said.timezone,
        missed=_word(said.missed, MissedPolicy, "missed"),
        overlap=_word(said.overlap, OverlapPolicy, "overlap"),
        deadline_s=deadline_s,
    )
    Cron(schedule.cron, schedule.timezone)
    made = await who.manager.queues.schedules.add(schedule)
    who.note("schedule.add", made.name)
    return answer(_shown(made), 201)


def _deadline(value: str | float | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, str) or not 0 < value <= _LONGEST_DEADLINE_S:
        raise InvalidField(
            "deadline is seconds from each run, 30 days at most", field="deadline"
        )
    return float(value)


def _word(text: str, kind: type[W], field: str) -> W:
    try:
        return kind(text)
    except ValueError:
        words = ", ".join(kind)
        raise InvalidField(f"{field} must be one of {words}", field=field) from None


def _shown(row: Schedule) -> shapes.ScheduleOut:
    spec = row.task
    return shapes.ScheduleOut.of(
        row,
        explained=Cron(row.cron, row.timezone).explained,
        status="paused" if row.is_paused else "active",
        task=TaskIn(
            task_type=spec.job_type,
            parameters=Raw(spec.payload.encode("utf-8", "surrogatepass")),
            priority=spec.priority,
            model_name=spec.model,
            timeout=spec.timeout_s,
            retries=spec.retries,
            deadline=row.deadline_s,
            labels=dict(spec.labels),
            overlap=str(spec.overlap),
            **asked(spec.options),
        ),
    )


@router.get(
    "/{name}",
    summary="One schedule, with its next times",
    **described(shapes.ScheduleShown, errors=(404,)),
)
async def get(name: str, who: Reader) -> Response:
    found = who.manager.queues.schedules.get(name)
    upcoming = who.manager.queues.schedules.upcoming(found, UPCOMING)
    return answer(shapes.ScheduleShown.of(_shown(found), upcoming=upcoming))


@router.delete(
    "/{name}",
    summary="Remove a schedule; tasks it has submitted stay",
    **described(shapes.ScheduleGone, errors=(404,)),
)
async def remove(name: str, who: Operator) -> Response:
    await who.manager.queues.schedules.remove(name)
    who.note("schedule.remove", name)
    return answer(shapes.ScheduleGone("the schedule is gone", name))


@router.post(
    "/{name}/pause",
    summary="Submit nothing until it is resumed",
    **described(shapes.ScheduleOut, errors=(404,)),
)
async def pause(name: str, who: Operator) -> Response:
    row = await who.manager.queues.schedules.pause(name)
    who.note("schedule.pause", name)
    return answer(_shown(row))


@router.post(
    "/{name}/resume",
    summary="Go on from now",
    **described(shapes.ScheduleOut, errors=(404,)),
)
async def resume(name: str, who: Operator) -> Response:
    row = await who.manager.queues.schedules.resume(name, who.key.owner)
    who.note("schedule.resume", name)
    return answer(_shown(row))


@router.post(
    "/{name}/run",
    summary="Submit its task now, beside the plan",
    **described(shapes.ScheduleRun, status=201, errors=(404, 409, 422)),
)
async def run_now(name: str, request: Request, who: Operator) -> Response:
    key = request.headers.get("idempotency-key")
    if key is not None:
        check_name(key, "idempotency_key")
    trace = request.scope["corral_trace"]
    task = await who.manager.queues.schedules.run_now(name, trace, key)
    who.note("schedule.run", name, task_id=task.id)
    return answer(shapes.ScheduleRun(task.id, status_of(task.state)), 201)
