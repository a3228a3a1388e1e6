"""Worker types, and what the job API calls a worker by."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    create table worker_types (
        name text primary key,
        worker_class text not null,
        params text not null,
        job_type text,
        created_at timestamptz
    )
    """,
    "alter table workers add column worker_type text",
    "alter table workers add column url text",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
