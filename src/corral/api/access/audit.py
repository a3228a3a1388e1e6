"""/audit: who asked for what, and whether that record is whole. For admins."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from corral.api.body import answer
from corral.api.caller import Caller, caller
from corral.api.openapi import described
from corral.api.tasks.intake import read_moment
from corral.core.access.audit import AuditQuery
from corral.core.access.key import Scope
from corral.wire.access import AuditCheck, AuditEntry, AuditPage

router = APIRouter(prefix="/audit", tags=["keys"])
Admin = Annotated[Caller, Depends(caller(Scope.ADMIN))]
Text = Annotated[str, Query(max_length=256)]
Moment = Annotated[
    str | None, Query(max_length=64, description="ISO 8601, or seconds from now")
]


@router.get("", summary="The audit trail", **described(AuditPage, errors=(422,)))
async def read(
    who: Admin,
    actor: Annotated[Text, Query(description="a key's or node's name or id")] = "",
    action: Annotated[Text, Query(description="how it begins: `key.`")] = "",
    target: Annotated[Text, Query(description="how it begins")] = "",
    allowed: bool | None = None,
    since: Moment = None,
    until: Moment = None,
    before: Annotated[
        int | None, Query(ge=1, lt=1 << 63, description="a cursor")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    access, now = who.manager.access, who.manager.now()
    where = AuditQuery(
        access.key_ids(actor) if actor else (),
        action,
        target,
        allowed,
        _moment(since, now, "since"),
        _moment(until, now, "until"),
        before,
    )
    # One more than asked for tells whether there are others.
    found = await access.audit.page(where, limit + 1)
    rows, names = found[:limit], access.key_names()
    checked = access.audit.checked
    if before is None:
        who.note("audit.read", "cluster")
    return answer(
        AuditPage(
            rows=[AuditEntry.of(row, name=names.get(row.actor, "")) for row in rows],
            cursor=rows[-1].seq if len(found) > limit else None,
            is_intact=checked[0].is_intact if checked else None,
            checked_at=checked[1] if checked else None,
        )
    )


def _moment(text: str | None, now: datetime, field: str) -> datetime | None:
    if text is None:
        return None
    try:
        return read_moment(float(text), now, field)
    except ValueError:
        return read_moment(text, now, field)


@router.get(
    "/check", summary="Look through its whole chain now", **described(AuditCheck)
)
async def check(who: Admin) -> Response:
    report = await who.manager.access.audit.check()
    who.note("audit.check", "cluster", fault=report.fault)
    return answer(AuditCheck.of(report))
