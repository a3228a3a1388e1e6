"""Named secrets, sealed."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    create table secrets (
        name text primary key,
        sealed text not null,
        job_types text[] not null,
        created_at timestamptz,
        updated_at timestamptz
    )
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
