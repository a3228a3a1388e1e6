"""/alerts, /cluster/health: what is wrong, now or before."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response
from msgspec import Struct

from corral.api.body import answer, plain, read
from corral.api.caller import Caller, caller
from corral.api.events.history import AtLeast, Limit
from corral.api.openapi import described
from corral.api.tasks.routes import Reader
from corral.core.access.key import Scope
from corral.core.insight.event import Event
from corral.core.insight.health import Severity, Thresholds
from corral.core.insight.health_rule import RULES
from corral.errors import NotFound
from corral.manager.alerts.alerts import ActiveFinding
from corral.wire.events import (
    AlertInfo,
    AlertList,
    ClusterHealth,
    HealthReason,
    HealthRule,
)

router = APIRouter(tags=["cluster"])
Operator = Annotated[Caller, Depends(caller(Scope.OPERATE))]
_LARGEST, _LONGEST = 1 << 63, 19


class AcknowledgeIn(Struct, forbid_unknown_fields=True):
    note: str = ""


@router.get(
    "/alerts",
    summary="What is or was wrong, newest first",
    **described(AlertList, errors=(422,)),
)
async def alerts(
    who: Reader,
    state: Literal["open", "all"] = "open",
    severity: AtLeast = None,
    limit: Limit = 100,
) -> Response:
    wanted = severity.and_worse if severity else tuple(Severity)
    rows = await who.manager.alerts.watch.find(wanted, limit, is_open=state == "open")
    return answer(AlertList(alerts=[_alert(row) for row in rows], total=len(rows)))


@router.post(
    "/alerts/{alert_id}/acknowledge",
    summary="Say that somebody looks after it",
    **described(
        AlertInfo,
        body=AcknowledgeIn,
        errors=(404, 409),
        example={"note": "the disk is being emptied"},
    ),
)
async def acknowledge(alert_id: str, request: Request, who: Operator) -> Response:
    said = await read(request, AcknowledgeIn)
    note = plain(said.note, "note") or ""
    name = who.key.name or who.key.id
    seq = _seq(alert_id)
    row = await who.manager.alerts.watch.acknowledge(seq, name, note)
    who.note("alert.acknowledge", alert_id)
    return answer(_alert(row))


def _seq(text: str) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) <= _LONGEST
    if not is_number or int(text) >= _LARGEST:
        raise NotFound(f"no alert {text!r}", alert_id=text)
    return int(text)


def _alert(row: Event) -> AlertInfo:
    data = row.data
    return AlertInfo(
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
    **described(ClusterHealth),
)
async def health(who: Reader) -> Response:
    alerting = who.manager.alerts.watch
    found = alerting.health()
    return answer(
        ClusterHealth(
            status=found.status,
            reasons=[_reason(reason) for reason in found.reasons],
            checked_at=found.checked_at,
            rules=_rules(alerting.limits),
        )
    )


def _reason(standing: ActiveFinding) -> HealthReason:
    return HealthReason.of(
        standing.finding,
        alert_id=standing.alert_id,
        is_acknowledged=standing.is_acknowledged,
    )


def _rules(limits: Thresholds) -> list[HealthRule]:
    return [
        HealthRule(
            rule=rule.name,
            looks_at=rule.looks_at,
            severity=rule.severity,
            worst=rule.worst or rule.severity,
            limit=getattr(limits, rule.limit) if rule.limit else None,
            at_once=rule.is_at_once,
        )
        for rule in RULES
    ]
