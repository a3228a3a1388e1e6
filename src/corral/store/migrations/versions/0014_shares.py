"""Shares of the cluster, what they have used today, and paused job types."""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    create table shares (
        name text primary key,
        weight double precision,
        max_running integer,
        gpu_seconds_per_day double precision
    )
    """,
    """
    create table share_uses (
        name text primary key,
        day integer not null,
        gpu_seconds double precision not null
    )
    """,
    "alter table job_types add column is_paused boolean not null default false",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
