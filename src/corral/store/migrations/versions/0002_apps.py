"""Apps of the gateway, and the order in which a job type's tasks are taken."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    create table apps (
        name text primary key,
        url text not null,
        timeout_s double precision not null,
        concurrency integer not null,
        created_at timestamptz
    )
    """,
    "alter table job_types add column queue_order text not null default 'priority'",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
