"""The small tables: job types, nodes, workers, models, schedules, keys."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, Table, Text

from corral.store.tables.metadata import Texts, Time, metadata

leadership = Table(
    "leadership",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("term", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("taken_at", Time),
)


job_types = Table(
    "job_types",
    metadata,
    Column("name", Text, primary_key=True),
    Column("target", Text, nullable=False),
    Column("input_schema", Text),
    Column("output_schema", Text),
    Column("created_at", Time),
    Column("queue_order", Text, nullable=False, server_default="priority"),
    Column("is_paused", Boolean, nullable=False, server_default="false"),
    Column("batch_limit", Integer),
    Column("cache_ttl_s", Double),
)


shares = Table(
    "shares",
    metadata,
    Column("name", Text, primary_key=True),
    Column("weight", Double),
    Column("max_running", Integer),
    Column("gpu_seconds_per_day", Double),
)


share_uses = Table(
    "share_uses",
    metadata,
    Column("name", Text, primary_key=True),
    Column("day", Integer, nullable=False),
    Column("gpu_seconds", Double, nullable=False),
)


apps = Table(
    "apps",
    metadata,
    Column("name", Text, primary_key=True),
    Column("url", Text, nullable=False),
    Column("timeout_s", Double, nullable=False),
    Column("concurrency", Integer, nullable=False),
    Column("created_at", Time),
    Column("timeouts", Text, nullable=False, server_default="{}"),
)


workers = Table(
    "workers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("node_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("worker_class", Text, nullable=False),
    Column("job_types", Texts, nullable=False),
    Column("params", Text, nullable=False),
    Column("concurrency", Integer, nullable=False),
    Column("worker_type", Text),
    Column("url", Text),
    Column("environment", Text),
    Column("entry", Text),
    Column("gpus", Text, nullable=False, server_default=""),
    Column("wanted", Boolean, nullable=False),
    Column("state", Text, nullable=False),
    Column("incarnation", Text),
    Column("pid", BigInteger),
    Column("error", Text),
    Column("restarts", Integer, nullable=False),
    Column("generation", Integer, nullable=False, server_default="0"),
    Column("started_at", Time),
    Column("last_heartbeat", Time),
    Index("workers_node", "node_id"),
)


worker_types = Table(
    "worker_types",
    metadata,
    Column("name", Text, primary_key=True),
    Column("worker_class", Text, nullable=False),
    Column("params", Text, nullable=False),
    Column("job_type", Text),
    Column("environment", Text),
    Column("versions", Texts, nullable=False),
    Column("created_at", Time),
    Column("min_workers", Integer, nullable=False, server_default="0"),
    Column("max_workers", Integer),
    Column("gpus", Text, nullable=False, server_default=""),
)


cluster_nodes = Table(
    "cluster_nodes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("hostname", Text, nullable=False),
    Column("node_type", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("address", Text),
    Column("version", Text),
    Column("epoch", BigInteger, nullable=False),
    Column("labels", Text, nullable=False),
    Column("capabilities", Text, nullable=False),
    Column("joined_at", Time),
    Column("left_at", Time),
    Column("last_heartbeat", Time),
    Column("set_labels", Text, nullable=False, server_default="{}"),
    Column("taints", Texts, nullable=False, server_default="{}"),
    Column("set_taints", Texts, nullable=False, server_default="{}"),
    Column("hold", Text),
    Column("windows", Text, nullable=False, server_default="[]"),
)


schedules = Table(
    "schedules",
    metadata,
    Column("name", Text, primary_key=True),
    Column("cron", Text, nullable=False),
    Column("timezone", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("missed", Text, nullable=False),
    Column("overlap", Text, nullable=False),
    Column("deadline_s", Double),
    Column("next_at", Time),
    Column("last_at", Time),
    Column("last_task_id", Text),
    Column("note", Text),
    Column("created_at", Time),
)


notices = Table(
    "notices",
    metadata,
    Column("task_id", Text, primary_key=True),
    Column("url", Text, primary_key=True),
    Column("run", Integer, nullable=False),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("since", Time),
    Column("due", Time),
)


keys = Table(
    "keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("node_id", Text),
    Column("created_at", Time),
    Column("expires_at", Time),
    Column("revoked_at", Time),
    Column("uses_left", Integer),
    Column("last_used_at", Time),
    Column("granted", Text),
)


# Good by their signature, and over before their time.
ended_sessions = Table(
    "ended_sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("until", Time, nullable=False),
)


learned = Table(
    "learned",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("job_type", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("units", Integer, primary_key=True),
    Column("worker_id", Text, primary_key=True),
    *(
        Column(name, Double, nullable=False)
        for name in ("count", "value", "spread", "middle")
    ),
    Column("sole", Text, nullable=False),
    Column("at", Time, nullable=False),
    Index("learned_at", "at"),
)


# Values are sealed under a key that is not in this database.
secrets = Table(
    "secrets",
    metadata,
    Column("name", Text, primary_key=True),
    Column("sealed", Text, nullable=False),
    Column("job_types", Texts, nullable=False),
    Column("created_at", Time),
    Column("updated_at", Time),
    Column("keys", Texts, nullable=False, server_default="{}"),
    Column("node_labels", Text, nullable=False, server_default="{}"),
)


# The tables of models: what was learned of them, the catalogue, and pins.

models = Table(
    "models",
    metadata,
    Column("name", Text, primary_key=True),
    Column("model_type", Text, nullable=False, server_default="other"),
    Column("source", Text),
    Column("size_mb", Double),
    Column("learned_size_mb", Double),
    Column("tags", Texts),
    Column("requirements", Text, nullable=False, server_default="{}"),
    Column("created_at", Time),
    Column("last_used_at", Time),
    Column("load_s", Double),
)

catalogue = Table(
    "catalogue",
    metadata,
    Column("name", Text, primary_key=True),
    Column("model_type", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("wanted", Text, nullable=False, server_default=""),
    Column("revision", Text, nullable=False, server_default=""),
    Column("files", Text, nullable=False, server_default="[]"),
    Column("status", Text, nullable=False),
    Column("error", Text),
    Column("trust_remote_code", Boolean, nullable=False, server_default="false"),
    Column("dtype", Text),
    Column("memory_mb", Double),
    Column("tags", Texts, nullable=False, server_default="{}"),
    Column("created_at", Time),
    Column("uses", BigInteger, nullable=False, server_default="0"),
    Column("last_used_at", Time),
    Column("measures", Text, nullable=False, server_default="[]"),
)

model_pins = Table(
    "model_pins",
    metadata,
    Column("worker_id", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("preload", Boolean, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("created_at", Time),
)
