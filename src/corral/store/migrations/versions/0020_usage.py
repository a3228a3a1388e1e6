"""How many tasks waited, and the cards of workers that are gone."""

from __future__ import annotations

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

GONE = """
create table gone_workers (
    id text primary key,
    gpus text not null,
    at timestamptz not null
)
"""


def upgrade() -> None:
    op.execute("alter table task_counts add column waiting bigint")
    op.execute(GONE)
