"""The tables of tasks: attempts, logs, files and kept results."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Identity,
    Index,
    Integer,
    Table,
    Text,
    text,
)

from corral.store.tables.metadata import Texts, Time, metadata

# A task has ended exactly when it has this time. The index on live tasks asks for it
# and not for the state: a column of an index makes every update that changes it costly,
# and the state changes at each step.
LIVE = "finished_at is null"


# seq needs no unique index: the identity makes it so, and the check would be paid for
# on every update. Empty arrays are null, as are options of a task that has none; else
# they are JSON of those that differ from the usual (rows.options_text).
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
    Column("options", Text),
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


code_objects = Table(
    "code_objects",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("at", Time, nullable=False),
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
