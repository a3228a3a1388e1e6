"""The hot statements: each is one statement over arrays, whatever the batch's size.

Every statement locks the leadership row of its own term, so that a new leader waits
for what is in flight and a deposed one finds no row and writes nothing. Each also
leaves one event row for the whole batch: history costs nothing per task.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from corral.store.postgres.tasks.columns import (
    ANSWERED,
    INSERTED,
    PLACED,
    SETTLED,
    TASK_COLUMNS,
    ArrayColumn,
    array_type,
)
from corral.store.tables.tasks import LIVE

# By state and never by finished_at: the planner would see that the index of live tasks
# holds every row asked for, and walk it whole for each row of the batch.
_LIVE = "state in ('queued', 'assigned', 'running')"
_LEAD = "lead as (select from leadership where term = $1 for share)"


def _rows(alias: str, first: int, names: Sequence[str]) -> str:
    arrays = (
        f"${place}::{array_type(name)}" for place, name in enumerate(names, first)
    )
    return f"unnest({', '.join(arrays)}) as {alias}({', '.join(names)})"


def _names(columns: Iterable[ArrayColumn]) -> list[str]:
    return [column.name for column in columns]


def _prefixed(alias: str, names: Iterable[str]) -> str:
    return ", ".join(f"{alias}.{name}" for name in names)


# Who is to be told of a task's end.
_NOTICES = """
select owed.id, url, owed.run
from {source} owed, json_array_elements_text(owed.options::json -> 'notify') as url
on conflict (task_id, url) do update
    set run = excluded.run, tries = 0, since = null, due = null
"""
_NOTED = f"""
noted as (
    insert into notices (task_id, url, run) {_NOTICES.format(source="made")}
),"""

_INSERT = f"""
with {_LEAD},
made as (
    insert into tasks ({{columns}})
    select {{picks}}
    from {{rows}}
    where exists (select from lead)
    on conflict do nothing
    returning id, seq, state, created_at{{more}}
),{{noted}}
event as (
    insert into cluster_events (event_type, title, at, task_ids, data)
    select 'tasks_submitted', count(*) || ' submitted', max(created_at),
        array_agg(id), '{{{{"states":["' || string_agg(state, '","') || '"]}}}}'
    from made
    having count(*) > 0{{ended}}
)
select id, seq from made
"""
# Those that came with their result have ended in the same moment.
_ENDED = """
    union all
    select 'tasks_settled', count(*) || ' settled', max(finished_at), array_agg(id),
        '{"attempts":[' || string_agg(attempt::text, ',') || '],"states":["'
        || string_agg(state, '","') || '"]}'
    from made where finished_at is not null
    having count(*) > 0"""


def _insert(columns: Sequence[ArrayColumn], **more: str) -> str:
    names = _names(columns)
    return _INSERT.format(
        columns=", ".join(names),
        picks=", ".join(column.pick for column in columns),
        rows=_rows("t", 2, names),
        **more,
    )


INSERT = _insert(INSERTED, more="", noted="", ended="")
INSERT_NOTED = _insert(INSERTED, more=", options, run", noted=_NOTED, ended="")
"""For a batch in which somebody is to be told of a task's end."""
INSERT_ANSWERED = _insert(
    ANSWERED,
    more=", options, run, attempt, finished_at",
    noted=_NOTED,
    ended=_ENDED,
)

BY_ID = f"select {', '.join(TASK_COLUMNS)} from tasks where id = any($1::text[])"

LIVE_AFTER = f"""
select {", ".join("''" if name == "payload" else name for name in TASK_COLUMNS)}
from tasks where {LIVE} and seq > $1 order by seq limit $2
"""

BY_IDEMPOTENCY_KEY = f"""
select {_prefixed("t", TASK_COLUMNS)}
from unnest($1::text[], $2::text[]) as k(owner, idempotency_key)
join tasks t on t.owner = k.owner and t.idempotency_key = k.idempotency_key
    and t.idempotency_key is not null
"""

PLACE = f"""
with {_LEAD},
placed as (
    update tasks t
    set state = 'assigned', worker_id = p.worker_id, incarnation = p.incarnation,
        node_id = p.node_id, assigned_at = $2
    from {_rows("p", 3, _names(PLACED))}
    where t.id = p.id and t.attempt = p.attempt and t.state = 'queued'
        and exists (select from lead)
    returning t.id, t.attempt, t.worker_id, t.payload
),
event as (
    insert into cluster_events (event_type, title, at, task_ids, data)
    select 'tasks_assigned', count(*) || ' assigned', $2, array_agg(id),
        '{{"attempts":[' || string_agg(attempt::text, ',')
        || '],"workers":' || to_json(array_agg(worker_id))::text || '}}'
    from placed
    having count(*) > 0
)
select id, payload from placed
"""

START = f"""
with {_LEAD}
update tasks t
set state = 'running', started_at = s.started_at
from {_rows("s", 2, ("id", "attempt", "started_at"))}
where t.id = s.id and t.attempt = s.attempt and t.state = 'assigned'
    and exists (select from lead)
returning t.id
"""

# `before` reads each row as the statement found it: what an attempt that goes back
# to the queue had is gone from the row by then. Only attempts that did not complete
# pay for that second look.
SETTLE = f"""
with {_LEAD},
ended as (
    update tasks t
    set state = s.state, attempt = t.attempt + (s.state = 'queued')::int,
        tries = coalesce(s.tries, 0), losses = coalesce(s.losses, 0),
        worker_id = case when s.state = 'queued' then null else t.worker_id end,
        incarnation = case when s.state = 'queued' then null else t.incarnation end,
        node_id = case when s.state = 'queued' then null else t.node_id end,
        assigned_at = case when s.state = 'queued' then null else t.assigned_at end,
        started_at = case when s.state = 'queued' then null
            else coalesce(s.started_at, t.started_at) end,
        finished_at = case when s.state = 'queued' then null else s.finished_at end,
        run_after = case when s.state = 'queued' then s.run_after
            else t.run_after end,
        result = s.result, error_kind = s.error_kind,
        error_message = s.error_message, error_traceback = s.error_traceback,
        dead_letter = s.dead_letter
    from {_rows("s", 2, _names(SETTLED))}
    where t.id = s.id and t.attempt = s.attempt and t.{_LIVE}
        and exists (select from lead)
    returning t.id, t.run, s.attempt, s.state, s.outcome, s.started_at,
        s.finished_at, s.error_kind, s.error_message, s.error_traceback
),
history as (
    insert into attempts (task_id, attempt, run, outcome, worker_id, node_id,
        started_at, finished_at, error_kind, error_message, error_traceback)
    select e.id, e.attempt, e.run, e.outcome, before.worker_id, before.node_id,
        coalesce(e.started_at, before.started_at), e.finished_at,
        e.error_kind, e.error_message, e.error_traceback
    from ended e join tasks before on before.id = e.id
    where e.outcome <> 'completed'
    on conflict do nothing
),
event as (
    insert into cluster_events (event_type, title, at, task_ids, data)
    select 'tasks_settled', count(*) || ' settled', max(finished_at), array_agg(id),
        '{{"attempts":[' || string_agg(attempt::text, ',') || '],"states":["'
        || string_agg(state, '","') || '"]}}'
    from ended
    having count(*) > 0
)
select id from ended
"""

# A completed attempt lives in the task's own row, which the new run takes over: it
# moves to the history here, the others went there when they ended.
REQUEUE = f"""
with {_LEAD},
again as (
    update tasks
    set state = 'queued', attempt = attempt + 1, run = run + 1, tries = 0,
        losses = 0, worker_id = null, incarnation = null, node_id = null,
        assigned_at = null, started_at = null, finished_at = null, run_after = null,
        deadline = case when deadline > $3 then deadline end,
        result = null, error_kind = null, error_message = null,
        error_traceback = null, dead_letter = null
    where id = $2 and not ({_LIVE}) and exists (select from lead)
    returning {", ".join(TASK_COLUMNS)}
),
history as (
    insert into attempts (task_id, attempt, run, outcome, worker_id, node_id,
        started_at, finished_at)
    select before.id, before.attempt, before.run, 'completed', before.worker_id,
        before.node_id, before.started_at, coalesce(before.finished_at, $3)
    from again join tasks before on before.id = again.id
    where before.state = 'completed'
    on conflict do nothing
),
noted as (
    insert into notices (task_id, url, run) {_NOTICES.format(source="again")}
),
event as (
    insert into cluster_events (event_type, title, at, task_ids, data)
    select 'tasks_requeued', '1 requeued', $3, array[id],
        '{{"attempts":[' || attempt || ']}}'
    from again
)
select * from again
"""

DISCARD = f"""
with {_LEAD}
update tasks set dead_letter = null
where id = $2 and dead_letter is not null and exists (select from lead)
returning id
"""

TERM = "select term from leadership"
