"""Where the code of worker types and workers comes from, and its versions."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

STATEMENTS = (
    "alter table worker_types add column environment text",
    "alter table worker_types add column versions text[] not null default '{}'",
    "alter table workers add column environment text",
    "alter table workers add column entry text",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
