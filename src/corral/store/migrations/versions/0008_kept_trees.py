"""Folders kept for tasks: artifacts and checkpoints."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    create table kept_trees (
        task_id text not null,
        kind text not null,
        attempt integer not null,
        digest text not null,
        files integer not null,
        size bigint not null,
        left_out text not null,
        at timestamptz not null,
        primary key (task_id, kind, attempt)
    )
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
