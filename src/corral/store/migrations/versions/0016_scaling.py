"""How many workers a type may have, and the cards each of them is given."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

STATEMENTS = (
    "alter table worker_types add column min_workers integer not null default 0",
    "alter table worker_types add column max_workers integer",
    "alter table worker_types add column gpus text not null default ''",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
