"""Results kept to answer the same question again, and the types that ask for it."""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

TABLE = """
create table result_cache (
    key text primary key,
    job_type text not null,
    task_id text not null,
    result text not null,
    maker text not null,
    size integer not null,
    made_at timestamptz not null,
    used_at timestamptz not null
)
"""


def upgrade() -> None:
    op.execute("alter table job_types add column cache_ttl_s double precision")
    op.execute(TABLE)
