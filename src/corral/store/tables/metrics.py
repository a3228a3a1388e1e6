"""The tables of readings: raw, thinned to minutes, thinned to hours; counts of tasks.

A card's readings are many and small, so they carry a number for it, which `gpus` tells.
"""

from __future__ import annotations

from sqlalchemy import (
    REAL,
    BigInteger,
    Column,
    Double,
    Identity,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
)

from corral.core.insight.metric import GPU_METRICS, NODE_METRICS
from corral.store.tables.metadata import Time, metadata

system_resources = Table(
    "system_resources",
    metadata,
    Column("node_id", Text, primary_key=True),
    Column("at", Time, primary_key=True),
    Column("cpu_count", Integer, nullable=False),
    Column("cpu_percent", Double, nullable=False),
    Column("memory_total_mb", Double, nullable=False),
    Column("memory_used_mb", Double, nullable=False),
    Column("disk_total_gb", Double, nullable=False),
    Column("disk_used_gb", Double, nullable=False),
    Column("network_rx_bytes", BigInteger, nullable=False),
    Column("network_tx_bytes", BigInteger, nullable=False),
    Column("load_1m", Double, nullable=False),
    Column("load_5m", Double, nullable=False),
    Column("load_15m", Double, nullable=False),
    Column("network_rx_rate", Double),
    Column("network_tx_rate", Double),
    Column("gpu_count", Integer, nullable=False, server_default="0"),
    Column("gpu_utilization_percent", Double),
    Column("gpu_memory_used_mb", Double),
    Column("gpu_memory_total_mb", Double),
    Index("system_resources_at", "at"),
)

gpus = Table(
    "gpus",
    metadata,
    Column("id", Integer, Identity(always=True), primary_key=True),
    Column("node_id", Text, nullable=False),
    Column("gpu_uuid", Text, nullable=False),
    Column("gpu_index", Integer, nullable=False),
    Column("vendor", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("driver_version", Text),
    Column("memory_total_mb", Double),
    Column("last_at", Time, nullable=False),
    UniqueConstraint("node_id", "gpu_uuid", name="gpus_of_node"),
)

gpu_resources = Table(
    "gpu_resources",
    metadata,
    Column("gpu", Integer, primary_key=True, autoincrement=False),
    Column("at", Time, primary_key=True),
    *(Column(name, REAL) for name in GPU_METRICS),
)


def _thinned(name: str, key: Column[str] | Column[int], *more: str) -> Table:
    """Means and maxima of some readings, each row of one step."""
    figures = [Column(f, REAL) for m in more for f in (m, f"{m}_max")]
    return Table(
        name,
        metadata,
        key,
        Column("samples", Integer, nullable=False),
        Column("at", Time, primary_key=True),
        *figures,
    )


def _node() -> Column[str]:
    return Column("node_id", Text, primary_key=True)


def _gpu() -> Column[int]:
    return Column("gpu", Integer, primary_key=True, autoincrement=False)


system_minutes = _thinned("system_minutes", _node(), *NODE_METRICS)
system_hours = _thinned("system_hours", _node(), *NODE_METRICS)
gpu_minutes = _thinned("gpu_minutes", _gpu(), *GPU_METRICS)
gpu_hours = _thinned("gpu_hours", _gpu(), *GPU_METRICS)
Index("system_minutes_at", system_minutes.c.at)
Index("system_hours_at", system_hours.c.at)

task_counts = Table(
    "task_counts",
    metadata,
    Column("at", Time, primary_key=True),
    Column("ended", BigInteger, nullable=False),
    Column("completed", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("response_s", Double, nullable=False),
    Column("waiting", BigInteger),
)

gone_workers = Table(
    "gone_workers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("gpus", Text, nullable=False),
    Column("at", Time, nullable=False),
)
