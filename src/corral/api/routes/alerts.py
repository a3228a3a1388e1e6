"""/events, /alerts, /cluster/health: what happened, and what is wrong now."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response

from corral.api import alert_model as model
from corral.api.deps import Caller, answer, caller, read
from corral.api.describe import described
from corral.api.routes.tasks import Reader, Wait
from corral.api.worker_intake import plain
from corral.core.access.key import Scope
from corral.core.insight.health import Severity, Thresholds
from corral.core.insight.health_rule import RULES
from corral.core.tasks.job_type import NAME
from corral.errors import NotFound
from corral.manager.alerts.alerts import Standing
from corral.store.event import Event, EventFilter

router = APIRouter(tags=["cluster"])
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]
Limit = Annotated[int, Query(ge=1, le=1000)]
AtLeast = Annotated[
    Severity | None, Query(description="of this severity or a worse one")
]
_LARGEST, _LONGEST = 1 << 63, 19
_WHOLE_NAME = rf"^(?:{NAME.pattern})$"


@router.get(
    "/events",
    summary="What happened",
    **described(model.EventListOut, errors=(422,)),
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
    where = EventFilter(
        task_id,
        tuple(event_type.split(",")) if event_type else (),
        severity.and_worse if severity else (),
        node_id,
        with_tasks=tasks,
    )
    page = await who.manager.feed.page(where, after, limit, wait)
    return answer(model.EventListOut([_event(e) for e in page.events], page.next))


def _event(row: Event) -> model.EventOut:
    return model.EventOut(
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


@router.get(
    "/alerts",
    summary="What is or was wrong, newest first",
    **described(model.AlertListOut, errors=(422,)),
)
async def alerts(
    who: Reader,
    state: Literal["open", "all"] = "open",
    severity: AtLeast = None,
    limit: Limit = 100,
) -> Response:
    wanted = severity.and_worse if severity else tuple(Severity)
    if state == "open":
        found = who.manager.alarm.alerting.open_alerts()
        rows = [row for row in found if row.severity in wanted][:limit]
    else:
        where = EventFilter(severities=wanted)
        rows = list(await who.manager.store.alerts(where, limit))
    return answer(model.AlertListOut([_alert(row) for row in rows], len(rows)))


@router.post(
    "/alerts/{alert_id}/acknowledge",
    summary="Say that somebody looks after it",
    **described(
        model.AlertOut,
        body=model.AcknowledgeIn,
        errors=(404, 409),
        example={"note": "the disk is being emptied"},
    ),
)
async def acknowledge(alert_id: str, request: Request, who: Operator) -> Response:
    said = await read(request, model.AcknowledgeIn)
    note = plain(said.note, "note") or ""
    name = who.key.name or who.key.id
    seq = _seq(alert_id)
    row = await who.manager.alarm.alerting.acknowledge(seq, name, note)
    who.note("alert.acknowledge", alert_id)
    return answer(_alert(row))


def _seq(text: str) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) <= _LONGEST
    if not is_number or int(text) >= _LARGEST:
        raise NotFound(f"no alert {text!r}", alert_id=text)
    return int(text)


def _alert(row: Event) -> model.AlertOut:
    data = row.data
    return model.AlertOut(
        id=row.seq,
        rule=data.get("rule", ""),
        subject=data.get("subject", ""),
        severity=row.severity,
        title=row.title,
        value=data.get("value"),
        limit=data.get("limit"),
        node_id=row.source_node_id,
        raised_at=row.at,
        acknowledged_at=row.acknowledged_at,
        acknowledged_by=row.acknowledged_by,
        note=data.get("note"),
        resolved_at=row.resolved_at,
    )


@router.get(
    "/cluster/health",
    summary="How healthy the cluster is, and why",
    **described(model.ClusterHealthOut),
)
async def health(who: Reader) -> Response:
    alerting = who.manager.alarm.alerting
    found = alerting.health()
    return answer(
        model.ClusterHealthOut(
            found.status,
            [_reason(reason) for reason in found.reasons],
            found.checked_at,
            _rules(alerting.limits),
        )
    )


def _reason(standing: Standing) -> model.ReasonOut:
    found = standing.finding
    return model.ReasonOut(
        found.rule,
        found.severity,
        found.subject,
        found.title,
        found.value,
        found.limit,
        found.node_id,
        standing.alert_id,
        standing.is_acknowledged,
    )


def _rules(limits: Thresholds) -> list[model.RuleOut]:
    return [
        model.RuleOut(
            rule.name,
            rule.looks_at,
            rule.severity,
            rule.worst or rule.severity,
            getattr(limits, rule.limit) if rule.limit else None,
            rule.is_at_once,
        )
        for rule in RULES
    ]
