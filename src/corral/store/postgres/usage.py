"""What was used by whom, from the tasks that are kept: one query."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Double, Text, bindparam, text

from corral.core.insight.usage import UsageBy, UsageSpan, UsageStep
from corral.core.tasks.job_type import OWN_TYPES
from corral.core.tasks.needs import WHOLE
from corral.store.postgres.connection import ConnectionPool
from corral.store.postgres.rows import to_json
from corral.store.tables.metadata import Time

_NAMES = {
    UsageBy.OWNER: "tasks.owner",
    UsageBy.JOB_TYPE: "tasks.job_type",
    UsageBy.LABEL: """coalesce((select pair::json ->> 1
        from unnest(tasks.labels) as pair
        where starts_with(pair, :label) limit 1), '')""",
}
_OWN = ", ".join(f"'{name}'" for name in sorted(OWN_TYPES))
# A run that completed is its task; one that did not is an attempt; one that goes on is
# its task as well. A run over several steps counts in each with its part. Times are
# numbers of seconds: a hundred thousand runs are gone through while somebody waits.
_USAGE = f"""
with runs as (
    select {{name}} as name, tasks.options, attempts.worker_id, attempts.started_at,
        attempts.finished_at as ended_at, true as is_over
    from attempts join tasks on tasks.id = attempts.task_id
    where attempts.started_at < :end and attempts.finished_at > :begin
        and tasks.job_type not in ({_OWN})
    union all
    select {{name}}, tasks.options, worker_id, started_at, coalesce(finished_at, :now),
        finished_at is not null
    from tasks
    where state in ('completed', 'running') and started_at < :end
        and coalesce(finished_at, :now) > :begin and job_type not in ({_OWN})
),
told as (
    select runs.name, is_over, date_part('epoch', greatest(runs.started_at, :begin))
            as begin_s, date_part('epoch', least(ended_at, :end)) as end_s,
        date_part('epoch', ended_at) as ended_s,
        case when runs.options like '%"resources":%'
            then runs.options::json -> 'resources' end as need,
        coalesce(workers.gpus, gone_workers.gpus, '') as gpus
    from runs
    left join workers on workers.id = runs.worker_id
    left join gone_workers on gone_workers.id = runs.worker_id
),
counted as (
    select name, is_over, begin_s, end_s, ended_s, case
        when need is not null
            then (need ->> 'gpus')::float * (need ->> 'share')::float / {WHOLE}
        when gpus = '' then 0
        when gpus ~ '^\\d+$' then gpus::float
        else cardinality(string_to_array(gpus, ','))
    end as cards
    from told
),
steps as (
    select *, generate_series(floor(begin_s / :step)::bigint,
        floor(end_s / :step)::bigint) * :step as at
    from counted
),
parts as (
    select name, at, cards,
        greatest(least(end_s, at + :step) - greatest(begin_s, at), 0) as seconds,
        is_over and ended_s >= at and ended_s < at + :step as is_last
    from steps
)
select name, at::bigint, sum(seconds * cards), sum(seconds),
    count(*) filter (where is_last)
from parts group by 1, 2 order by 1, 2
"""


def _start(label: str) -> str:
    """What the text of a pair begins with whose first is this label."""
    return to_json([label])[:-1] + ","


class UsageRows:
    _pool: ConnectionPool

    async def usage(
        self, by: UsageBy, label: str, span: UsageSpan
    ) -> Sequence[UsageStep]:
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
        return [UsageStep(*row) for row in await self._pool.fetch(query)]
