"""Every table as SQLAlchemy metadata: what the cold statements are built from.

Nothing here creates anything: `migrations/` does, and a test holds the two together.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    Identity,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

HEAD = "0021"
"""The newest migration; a database that already has it needs no Alembic at all."""

# A task has ended exactly when it has this time. The index on live tasks asks for it
# and not for the state: a column of an index makes every update that changes it costly,
# and the state changes at each step.
LIVE = "finished_at is null"

# Whoever asks for these in the very words needs not go through all events of tasks.
NOT_OF_TASKS = "not starts_with(event_type, 'tasks_')"

metadata = MetaData()
Time = DateTime(timezone=True)
Texts = ARRAY(Text)

leadership = Table(
    "leadership",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("term", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("taken_at", Time),
)

# seq needs no unique index: the identity makes it so, and the check would be paid for
# on every update. Empty arrays are null.
tasks = Table(
    "tasks",
    metadata,
    Column("id", Text, primary_key=True),
    Column("seq", BigInteger, Identity(always=True), nullable=False),
    Column("job_type", Text, nullable=False),
    Column("payload", Text, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("model", Text),
    Column("timeout_s", Double),
    Column("retries", Integer, nullable=False),
    Column("run_after", Time),
    Column("deadline", Time),
    Column("idempotency_key", Text),
    Column("labels", Texts),
    Column("depends_on", Texts),
    Column("overlap", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("run", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("losses", Integer, nullable=False),
    Column("worker_id", Text),
    Column("incarnation", Text),
    Column("node_id", Text),
    Column("created_at", Time, nullable=False),
    Column("assigned_at", Time),
    Column("started_at", Time),
    Column("finished_at", Time),
    Column("result", Text),
    Column("error_kind", Text),
    Column("error_message", Text),
    Column("error_traceback", Text),
    Column("dead_letter", Text),
    Index("tasks_seq", "seq"),
    Index("tasks_live", "seq", postgresql_where=text(LIVE)),
    Index("tasks_dead", "seq", postgresql_where=text("dead_letter is not null")),
    Index(
        "tasks_idempotency",
        "owner",
        "idempotency_key",
        unique=True,
        postgresql_where=text("idempotency_key is not null"),
    ),
)

attempts = Table(
    "attempts",
    metadata,
    Column("task_id", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("run", Integer, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("worker_id", Text),
    Column("node_id", Text),
    Column("started_at", Time),
    Column("finished_at", Time, nullable=False),
    Column("error_kind", Text),
    Column("error_message", Text),
    Column("error_traceback", Text),
)

log_chunks = Table(
    "log_chunks",
    metadata,
    Column("task_id", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("size", Integer, nullable=False),
    Column("lines", Text, comment="null: the text is in the object folder"),
)

kept_trees = Table(
    "kept_trees",
    metadata,
    Column("task_id", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("files", Integer, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("left_out", Text, nullable=False),
    Column("at", Time, nullable=False),
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

result_cache = Table(
    "result_cache",
    metadata,
    Column("key", Text, primary_key=True),
    Column("job_type", Text, nullable=False),
    Column("task_id", Text, nullable=False),
    Column("result", Text, nullable=False),
    Column("maker", Text, nullable=False),
    Column("size", Integer, nullable=False),
    Column("made_at", Time, nullable=False),
    Column("used_at", Time, nullable=False),
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

cluster_events = Table(
    "cluster_events",
    metadata,
    Column("seq", BigInteger, Identity(always=True), primary_key=True),
    Column("at", Time, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("severity", Text, nullable=False, server_default="info"),
    Column("source_node_id", Text),
    Column("title", Text, nullable=False),
    Column("description", Text, nullable=False, server_default=""),
    Column("data", Text, nullable=False, server_default="{}"),
    Column("task_ids", Texts),
    Column("acknowledged_at", Time),
    Column("acknowledged_by", Text),
    Column("resolved_at", Time),
    Index("cluster_events_at", "at"),
    Index(
        "cluster_events_alerts", "seq", postgresql_where=text("event_type = 'alert'")
    ),
    Index("cluster_events_other", "seq", postgresql_where=text(NOT_OF_TASKS)),
    Index(
        "cluster_events_node",
        "source_node_id",
        "seq",
        postgresql_where=text("source_node_id is not null"),
    ),
)

cursors = Table(
    "cursors",
    metadata,
    Column("name", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
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
)

audit = Table(
    "audit",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Time, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("allowed", Boolean, nullable=False),
    Column("ip", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("data", Text, nullable=False),
    Column("hash", Text, nullable=False),
)

# Both ends of the chain: pruning moves the first, appending the last, so that rows
# cut off at either end are missed.
audit_chain = Table(
    "audit_chain",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("first_seq", BigInteger, nullable=False),
    Column("anchor", Text, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("last_hash", Text, nullable=False),
)
