"""The tables of what happened: events, the audit log, readers' cursors."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Identity,
    Index,
    Integer,
    Table,
    Text,
    text,
)

from corral.store.tables.metadata import Texts, Time, metadata

# Whoever asks for these in the very words needs not go through all events of tasks.
NOT_OF_TASKS = "not starts_with(event_type, 'tasks_')"


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
# cut off at either end are missed. The seal has the key of the chain over all of it.
audit_chain = Table(
    "audit_chain",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("first_seq", BigInteger, nullable=False),
    Column("anchor", Text, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("last_hash", Text, nullable=False),
    Column("keyed_from", BigInteger, nullable=False, server_default="0"),
    Column("seal", Text, nullable=False, server_default=""),
)
