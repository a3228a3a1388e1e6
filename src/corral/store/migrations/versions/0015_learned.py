"""What was learned of tasks and workers, and when a key was last used."""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    create table learned (
        kind text not null,
        job_type text not null,
        model text not null,
        units integer not null,
        worker_id text not null,
        count double precision not null,
        value double precision not null,
        spread double precision not null,
        middle double precision not null,
        sole text not null,
        at timestamptz not null,
        primary key (kind, job_type, model, units, worker_id)
    )
    """,
    "create index learned_at on learned (at)",
    "alter table keys add column last_used_at timestamptz",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
