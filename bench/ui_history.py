"""A cluster with a past: a hundred thousand tasks and a day of readings.

They are written straight into the store, as they would stand there after a week: to
run them all would take longer than what is measured.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx

from corral.core.insight.metric import GPU_METRICS, HOURS_S, MINUTES_S

DAY_S = 86_400
DAYS = 7
RAW_S, SAMPLE_S = 2 * HOURS_S, 30
TYPES = ("train", "embed", "transcribe", "render", "resize", "score", "chat", "export")
MODELS = ("llama-70b", "whisper-l", "esrgan-x4", "bge-m3", "sdxl")
TEAMS = ("vision", "speech", "search", "ads", "robots")
OWNERS = ("ann", "bob", "cem", "dua", "eve", "fay")
SCHEDULES, CATALOGUE = 20, 20
WAITING = "parked"
"""A job type that nobody serves: its tasks wait until they are cancelled."""

_TASKS = """
insert into tasks (id, job_type, payload, priority, model, retries, labels, overlap,
    owner, state, run, attempt, tries, losses, worker_id, node_id, created_at,
    assigned_at, started_at, finished_at, result, error_kind, error_message,
    error_traceback, dead_letter)
select gen_random_uuid()::text, ($2::text[])[1 + floor(random() * $3)],
    '{"input":"s3://bucket/part-' || n || '.parquet","options":{"size":' || n % 997
    || ',"mode":"fast"}}', (n % 3) * 10 - 10,
    case when n % 2 = 0 then ($4::text[])[1 + floor(random() * $5)] end,
    n % 4, array['["team", "' || ($6::text[])[1 + floor(random() * $7)] || '"]',
        '["run", "' || n / 500 || '"]'],
    'allowed', ($8::text[])[1 + floor(random() * $9)], said.state, 1,
    case when said.state = 'failed' then 1 + n % 4 else 1 end, n % 2, 0,
    worker.id, worker.node_id, at, at + interval '2 s', at + interval '3 s',
    at + interval '3 s' + random() * interval '90 s',
    case when said.state = 'completed' then '{"rows":' || n || ',"ok":true}' end,
    case said.state when 'failed' then 'exception' when 'timed_out' then 'timeout'
        when 'cancelled' then 'cancelled' end,
    case said.state when 'failed' then 'ValueError: part ' || n || ' has no rows'
        when 'timed_out' then 'it ran longer than 60 s'
        when 'cancelled' then 'cancelled by ann' end,
    case when said.state = 'failed' then repeat('  File "job.py", in run' || chr(10), 9)
    end,
    case when said.state in ('failed', 'timed_out') and n % 2 = 0 then 'exhausted' end
from generate_series(1, $1) as n
cross join lateral (select to_timestamp($10 + n * $11) as at) as clock
cross join lateral (select case when n % 25 = 0 then 'failed' when n % 50 = 1 then
    'cancelled' when n % 50 = 2 then 'timed_out' else 'completed' end as state) as said
join (select id, node_id, row_number() over (order by id) - 1 as place,
    count(*) over () as size from workers) as worker on worker.place = n % worker.size
order by n
"""
_ATTEMPTS = """
insert into attempts (task_id, attempt, run, outcome, worker_id, node_id, started_at,
    finished_at, error_kind, error_message, error_traceback)
select id, 1, 1, state, worker_id, node_id, started_at, finished_at, error_kind,
    error_message, error_traceback
from tasks where state in ('failed', 'timed_out')
"""
_EVENTS = """
insert into cluster_events (event_type, title, at, task_ids, data)
select 'tasks_settled', count(*) || ' settled', max(finished_at), array_agg(id),
    '{"states":["' || string_agg(state, '","') || '"]}'
from (select id, state, finished_at, row_number() over (order by seq) / 10 as batch
    from tasks where finished_at is not null) as ended
group by batch order by batch
"""
_COUNTS = """
insert into task_counts (at, ended, completed, failed, response_s, waiting)
select to_timestamp(at), 50, 46, 3, 2300.0, floor(random() * 400)
from generate_series($1::bigint, $2::bigint, $3::bigint) as at
on conflict do nothing
"""
_NODE_RAW = """
insert into system_resources (node_id, at, cpu_count, cpu_percent, memory_total_mb,
    memory_used_mb, disk_total_gb, disk_used_gb, network_rx_bytes, network_tx_bytes,
    load_1m, load_5m, load_15m, network_rx_rate, network_tx_rate, gpu_count,
    gpu_utilization_percent, gpu_memory_used_mb, gpu_memory_total_mb)
select id, to_timestamp(at), 64, random() * 100, 515000, random() * 400000, 3500, 1200,
    at * 1000, at * 500, 1, 1, 1, 1000, 500, 8, random() * 100, random() * 5e5, 652472
from generate_series($1::bigint, $2::bigint, $3::bigint) as at, cluster_nodes
where hostname like 'sim%' order by at on conflict do nothing
"""
_GPU_RAW = """
insert into gpu_resources (gpu, at, {names})
select id, to_timestamp(at), {values}
from generate_series($1::bigint, $2::bigint, $3::bigint) as at, gpus
order by at on conflict do nothing
"""


async def fill(database: Any, tasks: int) -> None:
    """Ended tasks of a week, what was counted of them, and readings of two hours."""
    now = int(time.time())
    first = now - DAYS * DAY_S
    step = (DAYS * DAY_S - 300.0) / tasks
    lists = (TYPES, MODELS, TEAMS, OWNERS)
    given = [value for words in lists for value in (list(words), len(words))]
    async with database.transaction():
        await database.execute(_TASKS, tasks, *given, float(first), step)
        await database.execute(_ATTEMPTS)
        await database.execute(_EVENTS)
        await database.execute(_COUNTS, first, now - HOURS_S, MINUTES_S)
        await _fill_readings(database, now)
    await database.execute("vacuum analyze")


async def _fill_readings(database: Any, now: int) -> None:
    figures = ", ".join(["random() * 100"] * len(GPU_METRICS))
    cards = _GPU_RAW.format(names=", ".join(GPU_METRICS), values=figures)
    for statement in (_NODE_RAW, cards):
        await database.execute(statement, now - RAW_S, now - SAMPLE_S, SAMPLE_S)


def prepare(api: httpx.Client, folder: Path, waiting: int) -> None:
    """What else a cluster in use has: types, waiting tasks, schedules, models."""
    for name in (*TYPES, WAITING):
        _ask(api, "/job-types", {"name": name})
    rows = [{"task_type": WAITING, "parameters": {"n": n}} for n in range(waiting)]
    _ask(api, "/tasks/batch", {"tasks": rows})
    for number in range(SCHEDULES):
        task = {"task_type": WAITING, "parameters": {}}
        cron = f"{number} 3 1 1 *"
        _ask(api, "/schedules", {"name": f"s{number:02}", "cron": cron, "task": task})
    for number in range(CATALOGUE):
        path = folder / f"m{number:02}"
        path.mkdir(parents=True)
        (path / "config.json").write_text("{}", encoding="utf-8")
        _ask(api, "/models", {"name": path.name, "source": str(path), "type": "other"})


def _ask(api: httpx.Client, path: str, body: Any) -> Any:
    answer = api.post(path, json=body)
    answer.raise_for_status()
    return answer.json()
