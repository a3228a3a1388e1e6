"""Every table, as 21 migrations had made them before the first release."""

from __future__ import annotations

from alembic import op

revision = "0021"
down_revision = None
branch_labels = None
depends_on = None

# Room on each page for the next version of its rows: a task is written two to four
# times within moments.
TASKS = """
create table tasks (
    id text primary key,
    seq bigint generated always as identity,
    job_type text not null,
    payload text not null,
    priority integer not null,
    model text,
    timeout_s double precision,
    retries integer not null,
    run_after timestamptz,
    deadline timestamptz,
    idempotency_key text,
    labels text[],
    depends_on text[],
    overlap text not null,
    owner text not null,
    state text not null,
    run integer not null,
    attempt integer not null,
    tries integer not null,
    losses integer not null,
    worker_id text,
    incarnation text,
    node_id text,
    created_at timestamptz not null,
    assigned_at timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    result text,
    error_kind text,
    error_message text,
    error_traceback text,
    dead_letter text
) with (fillfactor = 70);
create index tasks_seq on tasks (seq);
create index tasks_live on tasks (seq) where finished_at is null;
create index tasks_dead on tasks (seq) where dead_letter is not null;
create unique index tasks_idempotency on tasks (owner, idempotency_key)
    where idempotency_key is not null;
create table attempts (
    task_id text not null,
    attempt integer not null,
    run integer not null,
    outcome text not null,
    worker_id text,
    node_id text,
    started_at timestamptz,
    finished_at timestamptz not null,
    error_kind text,
    error_message text,
    error_traceback text,
    primary key (task_id, attempt)
);
create table log_chunks (
    task_id text not null,
    attempt integer not null,
    seq bigint not null,
    size integer not null,
    lines text,
    primary key (task_id, attempt, seq)
);
comment on column log_chunks.lines is 'null: the text is in the object folder';
create table kept_trees (
    task_id text not null,
    kind text not null,
    attempt integer not null,
    digest text not null,
    files integer not null,
    size bigint not null,
    left_out text not null,
    at timestamptz not null,
    primary key (task_id, kind, attempt)
);
create table notices (
    task_id text not null,
    url text not null,
    run integer not null,
    tries integer not null default 0,
    since timestamptz,
    due timestamptz,
    primary key (task_id, url)
);
create table result_cache (
    key text primary key,
    job_type text not null,
    task_id text not null,
    result text not null,
    maker text not null,
    size integer not null,
    made_at timestamptz not null,
    used_at timestamptz not null
)
"""

# The one row of leadership is there from the start: statements lock it.
LEADERSHIP = """
create table leadership (
    id integer primary key,
    term bigint not null,
    holder text not null,
    taken_at timestamptz
);
insert into leadership (id, term, holder) values (1, 0, '')
"""

REGISTRY = """
create table job_types (
    name text primary key,
    target text not null,
    input_schema text,
    output_schema text,
    created_at timestamptz,
    queue_order text not null default 'priority',
    is_paused boolean not null default false,
    batch_limit integer,
    cache_ttl_s double precision
);
create table apps (
    name text primary key,
    url text not null,
    timeout_s double precision not null,
    concurrency integer not null,
    created_at timestamptz,
    timeouts text not null default '{}'
);
create table cursors (name text primary key, seq bigint not null);
create table schedules (
    name text primary key,
    cron text not null,
    timezone text not null,
    task text not null,
    missed text not null,
    overlap text not null,
    deadline_s double precision,
    next_at timestamptz,
    last_at timestamptz,
    last_task_id text,
    note text,
    created_at timestamptz
);
create table shares (
    name text primary key,
    weight double precision,
    max_running integer,
    gpu_seconds_per_day double precision
);
create table share_uses (
    name text primary key,
    day integer not null,
    gpu_seconds double precision not null
);
create table models (
    name text primary key,
    model_type text not null default 'other',
    source text,
    size_mb double precision,
    learned_size_mb double precision,
    tags text[],
    requirements text not null default '{}',
    created_at timestamptz,
    last_used_at timestamptz,
    load_s double precision
);
create table model_pins (
    worker_id text not null,
    model text not null,
    preload boolean not null,
    priority integer not null,
    created_at timestamptz,
    primary key (worker_id, model)
);
create table catalogue (
    name text primary key,
    model_type text not null,
    source text not null,
    wanted text not null default '',
    revision text not null default '',
    files text not null default '[]',
    status text not null,
    error text,
    trust_remote_code boolean not null default false,
    dtype text,
    memory_mb double precision,
    tags text[] not null default '{}',
    created_at timestamptz,
    uses bigint not null default 0,
    last_used_at timestamptz,
    measures text not null default '[]'
);
create table learned (
    kind text not null,
    job_type text not null,
    model text not null,
    units integer not null,
    worker_id text not null,
    count double precision not null,
    value double precision not null,
    spread double precision not null,
    middle double precision not null,
    sole text not null,
    at timestamptz not null,
    primary key (kind, job_type, model, units, worker_id)
);
create index learned_at on learned (at);
create table cluster_nodes (
    id text primary key,
    hostname text not null,
    node_type text not null,
    state text not null,
    address text,
    version text,
    epoch bigint not null,
    labels text not null,
    capabilities text not null,
    joined_at timestamptz,
    left_at timestamptz,
    last_heartbeat timestamptz,
    set_labels text not null default '{}',
    taints text[] not null default '{}',
    set_taints text[] not null default '{}',
    hold text,
    windows text not null default '[]'
) with (fillfactor = 70);
create table workers (
    id text primary key,
    node_id text not null,
    name text not null,
    worker_class text not null,
    job_types text[] not null,
    params text not null,
    concurrency integer not null,
    wanted boolean not null,
    state text not null,
    incarnation text,
    pid bigint,
    error text,
    restarts integer not null,
    started_at timestamptz,
    last_heartbeat timestamptz,
    worker_type text,
    url text,
    environment text,
    entry text,
    generation integer not null default 0,
    gpus text not null default ''
) with (fillfactor = 70);
create index workers_node on workers (node_id);
create table gone_workers (
    id text primary key,
    gpus text not null,
    at timestamptz not null
);
create table worker_types (
    name text primary key,
    worker_class text not null,
    params text not null,
    job_type text,
    created_at timestamptz,
    environment text,
    versions text[] not null default '{}',
    min_workers integer not null default 0,
    max_workers integer,
    gpus text not null default ''
);
create table keys (
    id text primary key,
    digest text not null,
    scope text not null,
    name text not null,
    node_id text,
    created_at timestamptz,
    expires_at timestamptz,
    revoked_at timestamptz,
    uses_left integer,
    last_used_at timestamptz
);
create table secrets (
    name text primary key,
    sealed text not null,
    job_types text[] not null,
    created_at timestamptz,
    updated_at timestamptz
)
"""

SAMPLES = """
create table system_resources (
    node_id text not null,
    at timestamptz not null,
    cpu_count integer not null,
    cpu_percent double precision not null,
    memory_total_mb double precision not null,
    memory_used_mb double precision not null,
    disk_total_gb double precision not null,
    disk_used_gb double precision not null,
    network_rx_bytes bigint not null,
    network_tx_bytes bigint not null,
    load_1m double precision not null,
    load_5m double precision not null,
    load_15m double precision not null,
    network_rx_rate double precision,
    network_tx_rate double precision,
    gpu_count integer not null default 0,
    gpu_utilization_percent double precision,
    gpu_memory_used_mb double precision,
    gpu_memory_total_mb double precision,
    primary key (node_id, at)
);
create index system_resources_at on system_resources (at);
create table gpus (
    id integer generated always as identity primary key,
    node_id text not null,
    gpu_uuid text not null,
    gpu_index integer not null,
    vendor text not null,
    name text not null,
    driver_version text,
    memory_total_mb double precision,
    last_at timestamptz not null,
    constraint gpus_of_node unique (node_id, gpu_uuid)
);
create table gpu_resources (
    gpu integer not null,
    at timestamptz not null,
    memory_used_mb real,
    utilization_percent real,
    temperature_c real,
    power_w real,
    primary key (gpu, at)
);
create table task_counts (
    at timestamptz primary key,
    ended bigint not null,
    completed bigint not null,
    failed bigint not null,
    response_s double precision not null,
    waiting bigint
)
"""

# As they were named when this was written.
_NODE = """
    cpu_percent load_1m memory_used_mb memory_total_mb disk_used_gb disk_total_gb
    network_rx_rate network_tx_rate gpu_count gpu_utilization_percent
    gpu_memory_used_mb gpu_memory_total_mb
"""
_GPU = "memory_used_mb utilization_percent temperature_c power_w"


def _thinned(name: str, key: str, metrics: str) -> str:
    figures = ", ".join(f"{m} real, {m}_max real" for m in metrics.split())
    column = key.partition(" ")[0]
    return f"""
    create table {name} (
        {key} not null,
        samples integer not null,
        at timestamptz not null,
        {figures},
        primary key ({column}, at)
    )
    """


THINNED = (
    _thinned("system_minutes", "node_id text", _NODE),
    _thinned("system_hours", "node_id text", _NODE),
    _thinned("gpu_minutes", "gpu integer", _GPU),
    _thinned("gpu_hours", "gpu integer", _GPU),
    "create index system_minutes_at on system_minutes (at)",
    "create index system_hours_at on system_hours (at)",
)

# Arrays of ids hardly compress: trying costs more than it saves.
HISTORY = """
create table cluster_events (
    seq bigint generated always as identity primary key,
    at timestamptz not null,
    event_type text not null,
    severity text not null default 'info',
    source_node_id text,
    title text not null,
    description text not null default '',
    data text not null default '{}',
    task_ids text[],
    acknowledged_at timestamptz,
    acknowledged_by text,
    resolved_at timestamptz
);
alter table cluster_events alter column task_ids set storage external;
create index cluster_events_at on cluster_events (at);
create index cluster_events_alerts on cluster_events (seq)
    where event_type = 'alert';
create index cluster_events_other on cluster_events (seq)
    where not starts_with(event_type, 'tasks_');
create index cluster_events_node on cluster_events (source_node_id, seq)
    where source_node_id is not null;
create table audit (
    seq bigint primary key,
    at timestamptz not null,
    actor text not null,
    action text not null,
    target text not null,
    allowed boolean not null,
    ip text not null,
    request_id text not null,
    data text not null,
    hash text not null
);
create table audit_chain (
    id integer primary key,
    first_seq bigint not null,
    anchor text not null,
    last_seq bigint not null,
    last_hash text not null
);
insert into audit_chain values (1, 1, '', 0, '')
"""


def upgrade() -> None:
    # The driver prepares what it is sent, and takes one statement at a time.
    for part in (TASKS, LEADERSHIP, REGISTRY, SAMPLES, HISTORY):
        for statement in part.split(";\n"):
            op.execute(statement)
    for statement in THINNED:
        op.execute(statement)
