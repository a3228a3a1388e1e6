"""The hot statements: each is one statement over arrays, whatever the batch's size.

Every statement locks the leadership row of its own term, so that a new leader waits
for what is in flight and a deposed one finds no row and writes nothing. Each also
leaves one event row for the whole batch: history costs nothing per task.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from corral.core.tasks.task import Attempt, Overlap, State, Task, TaskError, TaskSpec
from corral.store.postgres.rows import read_options
from corral.store.tables.tasks import LIVE

_NESTED = {
    "spec": tuple(field.name for field in fields(TaskSpec)),
    "error": ("error_kind", "error_message", "error_traceback"),
}
SPEC_WIDTH = len(_NESTED["spec"])
TASK_COLUMNS = tuple(
    name for field in fields(Task) for name in _NESTED.get(field.name, (field.name,))
)
"""The fields of a task in their order, those of its spec and error in their places:
every statement returns tasks so, and `task_of` relies on it."""

INSERTED = {
    "id": "text",
    "job_type": "text",
    "payload": "text",
    "priority": "int4",
    "model": "text",
    "timeout_s": "float8",
    "retries": "int4",
    "run_after": "timestamptz",
    "deadline": "timestamptz",
    "idempotency_key": "text",
    "labels": "text",
    "depends_on": "text",
    "overlap": "text",
    "owner": "text",
    "options": "text",
    "state": "text",
    "run": "int4",
    "attempt": "int4",
    "tries": "int4",
    "losses": "int4",
    "worker_id": "text",
    "incarnation": "text",
    "node_id": "text",
    "created_at": "timestamptz",
    "assigned_at": "timestamptz",
}
ANSWERED = {**INSERTED, "finished_at": "timestamptz", "result": "text"}
"""For a batch in which some tasks come with their result."""
# Where every row has the usual value the whole array is sent as null (arrays.thin).
_PICKS = {
    "priority": "coalesce(priority, 0)",
    "retries": "coalesce(retries, 0)",
    "overlap": "coalesce(overlap, 'allowed')",
    "owner": "coalesce(owner, '')",
    "run": "coalesce(run, 1)",
    "attempt": "coalesce(attempt, 1)",
    "tries": "coalesce(tries, 0)",
    "losses": "coalesce(losses, 0)",
    # unnest flattens arrays of arrays, so these travel as array literals.
    "labels": "labels::text[]",
    "depends_on": "depends_on::text[]",
}

PLACED = {
    "id": "text",
    "attempt": "int4",
    "worker_id": "text",
    "incarnation": "text",
    "node_id": "text",
}

STARTED = {"id": "text", "attempt": "int4", "started_at": "timestamptz"}

SETTLED = {
    "id": "text",
    "attempt": "int4",
    "state": "text",
    "outcome": "text",
    "tries": "int4",
    "losses": "int4",
    "finished_at": "timestamptz",
    "run_after": "timestamptz",
    "started_at": "timestamptz",
    "result": "text",
    "error_kind": "text",
    "error_message": "text",
    "error_traceback": "text",
    "dead_letter": "text",
}

# By state and never by finished_at: the planner would see that the index of live tasks
# holds every row asked for, and walk it whole for each row of the batch.
_LIVE = "state in ('queued', 'assigned', 'running')"
_LEAD = "lead as (select from leadership where term = $1 for share)"


def _rows(alias: str, first: int, columns: dict[str, str]) -> str:
    arrays = (f"${first + i}::{kind}[]" for i, kind in enumerate(columns.values()))
    return f"unnest({', '.join(arrays)}) as {alias}({', '.join(columns)})"


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


def _insert(columns: dict[str, str], **more: str) -> str:
    return _INSERT.format(
        columns=", ".join(columns),
        picks=", ".join(_PICKS.get(name, name) for name in columns),
        rows=_rows("t", 2, columns),
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
    from {_rows("p", 3, PLACED)}
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
from {_rows("s", 2, STARTED)}
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
    from {_rows("s", 2, SETTLED)}
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


def _error(
    kind: str | None, message: str | None, trace: str | None
) -> TaskError | None:
    return None if kind is None else TaskError(kind, message or "", trace)


def task_of(row: Sequence[Any]) -> Task:
    """Columns stand in the order of the fields, so most pass straight through."""
    *spec, labels, depends_on, overlap, owner, options = row[:SPEC_WIDTH]
    spec.append(dict(map(json.loads, labels)) if labels else {})
    spec.append(tuple(depends_on) if depends_on else ())
    spec += (Overlap(overlap), owner, read_options(options))
    state, *rest, kind, message, trace, dead_letter = row[SPEC_WIDTH:]
    rest += (_error(kind, message, trace), dead_letter)
    return Task(TaskSpec(*spec), State(state), *rest)


def attempt_of(row: Mapping[str, Any]) -> Attempt:
    return Attempt(
        task_id=row["task_id"],
        run=row["run"],
        attempt=row["attempt"],
        outcome=row["outcome"],
        worker_id=row["worker_id"],
        node_id=row["node_id"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        error=_error(row["error_kind"], row["error_message"], row["error_traceback"]),
    )
