"""Alembic's entry: runs on the connection of `store/postgres/migrate.py`."""

from __future__ import annotations

from alembic import context

from corral.store.tables.metadata import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata
)
with context.begin_transaction():
    context.run_migrations()
