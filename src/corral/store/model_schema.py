"""The tables of models: what was learned of them, the catalogue, and pins."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Double, Integer, Table, Text

from corral.store.schema import Texts, Time, metadata

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
