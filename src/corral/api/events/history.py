"""/events: what happened, in pages."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from msgspec import Struct

from corral.api.body import answer
from corral.api.openapi import described
from corral.api.tasks.routes import Reader, Wait
from corral.core.insight.event import Event, EventQuery
from corral.core.insight.health import Severity
from corral.core.tasks.job_type import NAME

router = APIRouter(tags=["cluster"])
_LARGEST = 1 << 63
Limit = Annotated[int, Query(ge=1, le=1000)]
AtLeast = Annotated[
    Severity | None, Query(description="of this severity or a worse one")
]
_WHOLE_NAME = rf"^(?:{NAME.pattern})$"


class EventOut(Struct):
    """The last three are of alerts alone."""

    seq: int
    event_type: str
    severity: str
    title: str
    description: str
    source_node_id: str | None
    task_ids: list[str]
    data: dict[str, Any]
    at: datetime | None
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    resolved_at: datetime | None


class EventListOut(Struct):
    """`next` is the `after` of the page that follows."""

    events: list[EventOut]
    next: int


@router.get(
    "/events",
    summary="What happened",
    **described(EventListOut, errors=(422,)),
)
async def events(
    who: Reader,
    after: Annotated[int, Query(ge=0, lt=_LARGEST)] = 0,
    limit: Limit = 100,
    task_id: Annotated[str | None, Query(pattern=_WHOLE_NAME)] = None,
    severity: AtLeast = None,
    event_type: Annotated[
        str | None, Query(alias="type", pattern=r"^[a-z_]{1,64}(,[a-z_]{1,64}){0,31}$")
    ] = None,
    node_id: Annotated[str | None, Query(pattern=_WHOLE_NAME)] = None,
    tasks: Annotated[bool, Query(description="false leaves those of tasks out")] = True,
    wait: Wait = 0.0,
) -> Response:
    where = EventQuery(
        task_id,
        tuple(event_type.split(",")) if event_type else (),
        severity.and_worse if severity else (),
        node_id,
        with_tasks=tasks,
    )
    page = await who.manager.events.history.page(where, after, limit, wait)
    return answer(EventListOut([_event(e) for e in page.events], page.next))


def _event(row: Event) -> EventOut:
    return EventOut(
        row.seq,
        row.event_type,
        row.severity,
        row.title,
        row.description,
        row.source_node_id,
        list(row.task_ids),
        dict(row.data),
        row.at,
        row.acknowledged_at,
        row.acknowledged_by,
        row.resolved_at,
    )
