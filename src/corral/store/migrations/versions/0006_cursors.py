"""How far readers of the events have come."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

STATEMENTS = ("create table cursors (name text primary key, seq bigint not null)",)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
