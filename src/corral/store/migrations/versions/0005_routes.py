"""Timeouts of an app's paths, and how often a worker was to start anew."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

STATEMENTS = (
    "alter table apps add column timeouts text not null default '{}'",
    "alter table workers add column generation integer not null default 0",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
