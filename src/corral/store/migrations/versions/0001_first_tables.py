"""The first tables."""

from __future__ import annotations

from alembic import op

revision = "0001"
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
comment on column log_chunks.lines is 'null: the text is in the object folder'
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
    created_at timestamptz
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
    last_used_at timestamptz
);
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
    last_heartbeat timestamptz
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
    last_heartbeat timestamptz
) with (fillfactor = 70);
create index workers_node on workers (node_id);
create table keys (
    id text primary key,
    digest text not null,
    scope text not null,
    name text not null,
    node_id text,
    created_at timestamptz,
    expires_at timestamptz,
    revoked_at timestamptz,
    uses_left integer
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
    primary key (node_id, at)
);
create index system_resources_at on system_resources using brin (at);
create table gpu_resources (
    gpu_uuid text not null,
    at timestamptz not null,
    node_id text not null,
    gpu_index integer not null,
    vendor text not null,
    name text not null,
    driver_version text,
    memory_total_mb double precision not null,
    memory_used_mb double precision,
    utilization_percent double precision,
    temperature_c double precision,
    power_w double precision,
    details text not null default '{}',
    primary key (gpu_uuid, at)
);
create index gpu_resources_at on gpu_resources using brin (at);
create index gpu_resources_node on gpu_resources (node_id, at)
"""

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

TABLES = (
    "audit_chain",
    "audit",
    "cluster_events",
    "gpu_resources",
    "system_resources",
    "keys",
    "workers",
    "cluster_nodes",
    "models",
    "job_types",
    "leadership",
    "log_chunks",
    "attempts",
    "tasks",
)


def upgrade() -> None:
    # The driver prepares what it is sent, and takes one statement at a time.
    for part in (TASKS, LEADERSHIP, REGISTRY, SAMPLES, HISTORY):
        for statement in part.split(";\n"):
            op.execute(statement)


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"drop table {table}")
