"""Readings of GPUs, what readings are thinned to, and counts of ended tasks."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

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


STATEMENTS = (
    """
    alter table system_resources
        add column network_rx_rate double precision,
        add column network_tx_rate double precision,
        add column gpu_count integer not null default 0,
        add column gpu_utilization_percent double precision,
        add column gpu_memory_used_mb double precision,
        add column gpu_memory_total_mb double precision
    """,
    # Rows are deleted and their place is used again, which such an index takes badly.
    "drop index system_resources_at",
    "create index system_resources_at on system_resources (at)",
    # Nothing was ever written to it.
    "drop table gpu_resources",
    """
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
    )
    """,
    """
    create table gpu_resources (
        gpu integer not null,
        at timestamptz not null,
        memory_used_mb real,
        utilization_percent real,
        temperature_c real,
        power_w real,
        primary key (gpu, at)
    )
    """,
    _thinned("system_minutes", "node_id text", _NODE),
    _thinned("system_hours", "node_id text", _NODE),
    _thinned("gpu_minutes", "gpu integer", _GPU),
    _thinned("gpu_hours", "gpu integer", _GPU),
    "create index system_minutes_at on system_minutes (at)",
    "create index system_hours_at on system_hours (at)",
    """
    create table task_counts (
        at timestamptz primary key,
        ended bigint not null,
        completed bigint not null,
        failed bigint not null,
        response_s double precision not null
    )
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
