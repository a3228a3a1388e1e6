"""How long models take to load, and which workers must not drop which."""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

STATEMENTS = (
    "alter table models add column load_s double precision",
    """
    create table model_pins (
        worker_id text not null,
        model text not null,
        preload boolean not null,
        priority integer not null,
        created_at timestamptz,
        primary key (worker_id, model)
    )
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
