"""/usage: GPU-hours by owner, label or job type, as JSON or CSV."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from corral.api.body import answer
from corral.api.caller import Caller, caller
from corral.api.openapi import described
from corral.core.access.key import Scope
from corral.core.insight.chart_series import read_moment
from corral.core.insight.usage import UsageBy, UsageSpan, UsageStep
from corral.errors import InvalidField
from corral.wire.insight import UsageGroup, UsageReport

router = APIRouter(tags=["cluster"])
Reader = Annotated[Caller, Depends(caller(Scope.READ))]
_HOUR_S, _DAY_S = 3600, 86_400
_LONGEST_S = 366 * _DAY_S
# Up to here steps are hours, then days.
_FINE_S = 2 * _DAY_S
_MOST_GROUPS = 50
_DIGITS = 4
_LABEL = "label:"


@router.get(
    "/usage",
    summary="GPU-hours by owner, label or job type",
    **described(UsageReport, errors=(422,)),
)
async def usage(
    request: Request,
    who: Reader,
    by: Annotated[
        str,
        Query(description="owner, job_type or label:KEY", pattern=r"^[^\x00]{1,256}$"),
    ] = "owner",
    begin: Annotated[str, Query(alias="from")] = "-7d",
    to: str = "now",
    form: Annotated[str | None, Query(alias="format", pattern=r"^(json|csv)$")] = None,
) -> Response:
    kind, label = _kind(by)
    span = _span(who, begin, to)
    rows = await who.manager.insight.usage(kind, label, span)
    is_csv = "text/csv" in request.headers.get("accept", "") if form is None else False
    if is_csv or form == "csv":
        return _csv(rows, by, span)
    return answer(_told(rows, by, span))


def _kind(by: str) -> tuple[UsageBy, str]:
    if by.startswith(_LABEL) and len(by) > len(_LABEL):
        return UsageBy.LABEL, by.removeprefix(_LABEL)
    if by in (UsageBy.OWNER, UsageBy.JOB_TYPE):
        return UsageBy(by), ""
    raise InvalidField("by must be owner, job_type or label:KEY", field="by")


def _span(who: Caller, begin: str, to: str) -> UsageSpan:
    now = who.manager.now()
    first = int(read_moment(begin, now, "from").timestamp())
    last = int(read_moment(to, now, "to").timestamp())
    last = min(last, int(now.timestamp()) + 1)
    if not 0 < last - first <= _LONGEST_S:
        raise InvalidField("from must be before to, by a year at most", field="from")
    step_s = _HOUR_S if last - first <= _FINE_S else _DAY_S
    return UsageSpan(first, last, step_s, now)


def _times(span: UsageSpan) -> range:
    return range(span.begin // span.step_s * span.step_s, span.end, span.step_s)


def _time(epoch_s: int) -> datetime:
    return datetime.fromtimestamp(epoch_s, UTC)


def _hours(seconds: float) -> float:
    return round(seconds / _HOUR_S, _DIGITS)


def _told(rows: Sequence[UsageStep], by: str, span: UsageSpan) -> UsageReport:
    groups: dict[str, list[UsageStep]] = defaultdict(list)
    for row in rows:
        groups[row.name].append(row)
    made = sorted(
        (_group(name, mine, span) for name, mine in groups.items()),
        key=lambda group: (-group.gpu_hours, -group.hours, group.name),
    )
    return UsageReport(
        by=by,
        begin=_time(span.begin),
        to=_time(span.end),
        step_s=span.step_s,
        times=[_time(at) for at in _times(span)],
        groups=made[:_MOST_GROUPS],
        gpu_hours=_hours(sum(row.gpu_s for row in rows)),
        hours=_hours(sum(row.run_s for row in rows)),
    )


def _group(name: str, rows: Sequence[UsageStep], span: UsageSpan) -> UsageGroup:
    by_step = {row.at: row.gpu_s for row in rows}
    return UsageGroup(
        name=name,
        gpu_hours=_hours(sum(row.gpu_s for row in rows)),
        hours=_hours(sum(row.run_s for row in rows)),
        runs=sum(row.ended for row in rows),
        series=[_hours(by_step.get(at, 0.0)) for at in _times(span)],
    )


def _csv(rows: Sequence[UsageStep], by: str, span: UsageSpan) -> Response:
    """A row for each name and step, for a sheet to sum as it likes."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(["from", "step_s", by, "gpu_hours", "hours", "runs"])
    for row in rows:
        # A name that a sheet would take for a formula is told to be none.
        name = f"'{row.name}" if row.name[:1] in tuple("=+-@") else row.name
        at = _time(row.at).isoformat()
        figures = (_hours(row.gpu_s), _hours(row.run_s), row.ended)
        out.writerow([at, span.step_s, name, *figures])
    headers = {"Content-Disposition": 'attachment; filename="usage.csv"'}
    return Response(text.getvalue(), headers=headers, media_type="text/csv")
