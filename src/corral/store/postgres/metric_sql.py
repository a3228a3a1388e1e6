"""The statements about readings, as SQL: thinning them, and reading them as charts.

All are made from the lists of metrics: a mean weighs each row by the readings in it,
a maximum is a maximum of maxima. `store/postgres/metrics.py` runs them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from corral.core.insight.metric import (
    CLUSTER_METRICS,
    GPU_METRICS,
    GPU_SHARE,
    HOURS_S,
    MINUTES_S,
    NODE_METRICS,
    SURE,
)
from corral.core.insight.usage import UsageBy
from corral.core.tasks.job_type import OWN_TYPES
from corral.core.tasks.needs import WHOLE


@dataclass(frozen=True, slots=True)
class ReadingKind:
    """Whose readings: the column that tells, and their tables from raw to coarse."""

    key: str
    metrics: tuple[str, ...]
    tables: tuple[str, str, str]
    sure: frozenset[str] = frozenset()


_SYSTEM = ("system_resources", "system_minutes", "system_hours")
NODES = ReadingKind("node_id", NODE_METRICS, _SYSTEM, SURE)
CLUSTER = ReadingKind("node_id", CLUSTER_METRICS, _SYSTEM, SURE)
GPUS = ReadingKind("gpu", GPU_METRICS, ("gpu_resources", "gpu_minutes", "gpu_hours"))
STEPS = (0, MINUTES_S, HOURS_S)
_BIN = "date_bin(make_interval(secs => :step), at, 'epoch'::timestamptz)"


def _columns(metrics: Iterable[str]) -> str:
    return ", ".join(f"{m}, {m}_max" for m in metrics)


def _part(kind: ReadingKind, tier: int, where: str) -> str:
    """Rows of one table as if each were thinned, between :from<tier> and :to<tier>."""
    figures, samples = _columns(kind.metrics), "samples"
    if tier == 0:
        figures = ", ".join(f"{m}, {m} as {m}_max" for m in kind.metrics)
        samples = "1 as samples"
    return f"""
        select {kind.key}, at, {samples}, {figures} from {kind.tables[tier]}
        where {where} and at >= :from{tier} and at < :to{tier}"""


def _merged(kind: ReadingKind, rows: str) -> str:
    """Rows put together by key and step."""
    figures = ", ".join(
        f"{_mean(m, kind.sure)} as {m}, max({m}_max) as {m}_max" for m in kind.metrics
    )
    return f"""
    select {kind.key}, {_BIN} as step_at, sum(samples)::int as samples, {figures}
    from ({rows}) as part group by 1, 2"""


def _mean(metric: str, sure: frozenset[str]) -> str:
    # Summed once for all that are always there.
    weight = "sum(samples)"
    if metric not in sure:
        weight = f"nullif(sum(samples) filter (where {metric} is not null), 0)"
    return f"sum({metric} * samples) / {weight}"


def _chart(kind: ReadingKind, where: str) -> str:
    """What is coarse of the coarse tables, what is not yet there of the finer ones."""
    return _merged(kind, " union all ".join(_part(kind, t, where) for t in (2, 1, 0)))


def _thin(kind: ReadingKind, tier: int, merged: str) -> str:
    """From one table to the next; a step thinned again replaces itself."""
    names = [f for m in kind.metrics for f in (m, f"{m}_max")]
    anew = ", ".join(f"{name} = excluded.{name}" for name in ("samples", *names))
    return f"""
    insert into {kind.tables[tier + 1]} ({kind.key}, at, samples, {", ".join(names)})
    {merged}
    on conflict ({kind.key}, at) do update set {anew}"""


def thin_nodes(tier: int) -> str:
    return _thin(NODES, tier, _merged(NODES, _part(NODES, tier, "true")))


def thin_gpus(tier: int) -> str:
    # Card by card, by primary key: an index on the time would cost as much as the rows.
    merged = _merged(GPUS, _part(GPUS, tier, "gpu = gpus.id"))
    return _thin(GPUS, tier, f"select m.* from gpus cross join lateral ({merged}) as m")


NODE_CHART = f"""
select extract(epoch from step_at)::bigint as at, samples, {_columns(NODE_METRICS)}
from ({_chart(NODES, "node_id = :node_id")}) as m order by 1
"""

GPU_CHART = f"""
select gpus.id, gpu_uuid, gpu_index, vendor, name, driver_version, memory_total_mb,
    extract(epoch from step_at)::bigint as at, samples,
    {", ".join(f"m.{m}, m.{m}_max" for m in GPU_METRICS)}
from gpus cross join lateral ({_chart(GPUS, "gpu = gpus.id")}) as m
where node_id = :node_id order by gpu_index, gpus.id, step_at
"""


def _over_nodes(metric: str) -> str:
    if metric == CLUSTER_METRICS[0]:
        return f"avg({metric})"
    if metric == GPU_SHARE:
        cards = f"nullif(sum(gpu_count) filter (where {metric} is not null), 0)"
        return f"sum({metric} * gpu_count) / {cards}"
    return f"sum({metric})"


CLUSTER_CHART = f"""
select extract(epoch from step_at)::bigint as at, count(*) as samples,
    {", ".join(f"{_over_nodes(m)}, max({m}_max)" for m in CLUSTER_METRICS)}
from ({_chart(CLUSTER, "true")}) as m group by step_at order by step_at
"""

# Known cards are only written to when something about them is new.
SAVE_GPUS = """
insert into gpus (node_id, gpu_uuid, gpu_index, vendor, name, driver_version,
    memory_total_mb, last_at)
select distinct on (node_id, gpu_uuid) * from unnest(:node_ids, :uuids, :indexes,
    :vendors, :names, :drivers, :totals, :times) as s(node_id, gpu_uuid, gpu_index,
    vendor, name, driver_version, memory_total_mb, last_at)
order by node_id, gpu_uuid
on conflict on constraint gpus_of_node do update set gpu_index = excluded.gpu_index,
    vendor = excluded.vendor, name = excluded.name,
    driver_version = excluded.driver_version,
    memory_total_mb = excluded.memory_total_mb, last_at = excluded.last_at
where gpus.last_at < excluded.last_at - interval '1 hour'
    or (gpus.gpu_index, gpus.vendor, gpus.name, gpus.driver_version,
        gpus.memory_total_mb) is distinct from (excluded.gpu_index, excluded.vendor,
        excluded.name, excluded.driver_version, excluded.memory_total_mb)
"""
SAVE_GPU_SAMPLES = f"""
insert into gpu_resources (gpu, at, {", ".join(GPU_METRICS)})
select gpus.id, s.at, {", ".join(f"s.{m}" for m in GPU_METRICS)}
from unnest(:node_ids, :uuids, :times, {", ".join(f":{m}" for m in GPU_METRICS)})
    as s(node_id, gpu_uuid, at, {", ".join(GPU_METRICS)})
join gpus using (node_id, gpu_uuid)
on conflict do nothing
"""

# The newest event to count: all before it are surely written, and it is not too much.
COUNT_UP_TO = """
select max(seq) from (
    select seq, at, sum(coalesce(cardinality(task_ids), 0)) over (order by seq) as load,
        row_number() over (order by seq) as place
    from (
        select seq, at, task_ids from cluster_events
        where seq > :after order by seq limit 2000
    ) as next
) as numbered where at < :until and (load <= 20000 or place = 1)
"""
_OWN = ", ".join(f"'{name}'" for name in sorted(OWN_TYPES))
COUNT_TASKS = f"""
insert into task_counts as known (at, ended, completed, failed, response_s)
select date_bin(interval '{MINUTES_S} seconds', coalesce(tasks.finished_at, event.at),
        'epoch'::timestamptz),
    count(*), count(*) filter (where ended.state = 'completed'),
    count(*) filter (where ended.state in ('failed', 'error', 'timed_out')),
    coalesce(sum(extract(epoch from tasks.finished_at - tasks.created_at))
        filter (where ended.state = 'completed'), 0)
from cluster_events as event,
    unnest(event.task_ids,
        array(select json_array_elements_text(event.data::json -> 'states')))
        as ended(id, state)
left join tasks on tasks.id = ended.id and tasks.finished_at is not null
where event.seq > :after and event.seq <= :upto
    and event.event_type = 'tasks_settled' and ended.state <> 'queued'
    and coalesce(tasks.job_type, '') not in ({_OWN})
group by 1
on conflict (at) do update set ended = known.ended + excluded.ended,
    completed = known.completed + excluded.completed,
    failed = known.failed + excluded.failed,
    response_s = known.response_s + excluded.response_s
"""
TASK_TOTALS = """
select coalesce(sum(ended), 0)::bigint, coalesce(sum(completed), 0)::bigint,
    coalesce(sum(failed), 0)::bigint, coalesce(sum(response_s), 0),
    coalesce(max(ended), 0)
from task_counts where at >= :begin and at < :end
"""
# The most that waited at any of the looks in a step.
NOTE_WAITING = f"""
insert into task_counts as known (at, ended, completed, failed, response_s, waiting)
select date_bin(interval '{MINUTES_S} seconds', :until, 'epoch'::timestamptz),
    0, 0, 0, 0, count(*)
from tasks where finished_at is null and state = 'queued' and job_type not in ({_OWN})
on conflict (at) do update set waiting = greatest(known.waiting, excluded.waiting)
"""
TASK_STEPS = f"""
select extract(epoch from {_BIN})::bigint as step_at, sum(completed)::bigint,
    sum(failed)::bigint, sum(response_s), max(waiting)
from task_counts where at >= :begin and at < :end group by 1 order by 1
"""

OLD_GPU_ROWS = """
delete from {table} where ctid = any(array(
    select old.ctid from gpus cross join lateral (
        select ctid from {table} where gpu = gpus.id and at < :end limit {batch}
    ) as old limit {batch}
))
"""
FORGET_GPUS = """
delete from gpus where last_at < :end
    and not exists (select from gpu_resources where gpu = gpus.id)
    and not exists (select from gpu_minutes where gpu = gpus.id)
    and not exists (select from gpu_hours where gpu = gpus.id)
"""


# What was used by whom, from the tasks that are kept: one query.
_NAMES = {
    UsageBy.OWNER: "tasks.owner",
    UsageBy.JOB_TYPE: "tasks.job_type",
    UsageBy.LABEL: """coalesce((select pair::json ->> 1
        from unnest(tasks.labels) as pair
        where starts_with(pair, :label) limit 1), '')""",
}
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


def usage(by: UsageBy) -> str:
    return _USAGE.format(name=_NAMES[by])
