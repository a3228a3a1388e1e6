"""What was used by whom, from the tasks that are kept: one query."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Double, Text, bindparam, text

from corral.core.job_type import OWN_TYPES
from corral.core.need import NEEDS, WHOLE
from corral.core.usage import Usage, UsageBy, UsageSpan
from corral.store.connection import Pool
from corral.store.record import to_json
from corral.store.schema import Time

_NAMES = {
    UsageBy.OWNER: "tasks.owner",
    UsageBy.JOB_TYPE: "tasks.job_type",
    UsageBy.LABEL: """coalesce((select pair::json ->> 1
        from unnest(tasks.labels) as pair
        where starts_with(pair, :label) limit 1), '')""",
}
_OWN = ", ".join(f"'{name}'" for name in sorted(OWN_TYPES))
# A run that completed is its task; one that did not is an attempt; one that goes on is
# its task as well. A run over several steps counts in each with its part.
_USAGE = f"""
with runs as (
    select task_id, worker_id, started_at, finished_at as ended_at,
        true as is_over from attempts
    where started_at < :end and finished_at > :begin
    union all
    select id, worker_id, started_at, coalesce(finished_at, :now),
        finished_at is not null from tasks
    where state in ('completed', 'running') and started_at < :end
        and coalesce(finished_at, :now) > :begin
),
named as (
    select {{name}} as name, greatest(runs.started_at, :begin) as begin_at,
        least(ended_at, :end) as end_at, ended_at, is_over, needs,
        coalesce(had.gpus, '') as gpus
    from runs
    left join (
        select id, gpus from workers union all
        select id, gpus from gone_workers where id not in (select id from workers)
    ) as had on had.id = runs.worker_id
    join tasks on tasks.id = runs.task_id and tasks.job_type not in ({_OWN})
    left join lateral (select pair::json ->> 1 as needs
        from unnest(tasks.labels) as pair
        where starts_with(pair, '["{NEEDS}",') limit 1) as asked on true
),
counted as (
    select name, begin_at, end_at, ended_at, is_over, case
        when needs is not null then
            coalesce(substring(needs from '(?:^|;)gpus=(\\d+)')::float, 0)
            * coalesce(substring(needs from '(?:^|;)share=(\\d+)')::float, 0) / {WHOLE}
        when gpus ~ '^\\d+$' then gpus::float
        when gpus = '' then 0
        else cardinality(string_to_array(gpus, ','))
    end as cards
    from named
),
parts as (
    select name, at, cards, extract(epoch from least(end_at, at + step)
            - greatest(begin_at, at))::float as seconds,
        is_over and ended_at >= at and ended_at < at + step as is_last
    from counted, (select make_interval(secs => :step) as step) as steps,
        generate_series(date_bin(step, begin_at, 'epoch'::timestamptz), end_at, step)
            as at
)
select name, extract(epoch from at)::bigint, sum(greatest(seconds, 0) * cards),
    sum(greatest(seconds, 0)), count(*) filter (where is_last)
from parts group by 1, 2 order by 1, 2
"""


def _start(label: str) -> str:
    """What the text of a pair begins with whose first is this label."""
    return to_json([label])[:-1] + ","


class UsageRows:
    _pool: Pool

    async def usage(self, by: UsageBy, label: str, span: UsageSpan) -> Sequence[Usage]:
        values: dict[str, tuple[Any, Any]] = {
            "begin": (datetime.fromtimestamp(span.begin, UTC), Time),
            "end": (datetime.fromtimestamp(span.end, UTC), Time),
            "now": (span.now, Time),
            "step": (float(span.step_s), Double),
            **({"label": (_start(label), Text)} if by is UsageBy.LABEL else {}),
        }
        query = text(_USAGE.format(name=_NAMES[by])).bindparams(
            *(
                bindparam(name, value, type_=kind)
                for name, (value, kind) in values.items()
            )
        )
        return [Usage(*row) for row in await self._pool.fetch(query)]
