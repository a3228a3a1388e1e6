"""Schedules, and who is still to be told that a task has ended."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    create table schedules (
        name text primary key,
        cron text not null,
        timezone text not null,
        task text not null,
        missed text not null,
        overlap text not null,
        deadline_s double precision,
        next_at timestamptz,
        last_at timestamptz,
        last_task_id text,
        note text,
        created_at timestamptz
    )
    """,
    """
    create table notices (
        task_id text not null,
        url text not null,
        run integer not null,
        tries integer not null default 0,
        since timestamptz,
        due timestamptz,
        primary key (task_id, url)
    )
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
