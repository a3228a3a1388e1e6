"""What operators say of nodes, and the GPUs a worker is given."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    alter table cluster_nodes
        add column set_labels text not null default '{}',
        add column taints text[] not null default '{}',
        add column set_taints text[] not null default '{}',
        add column hold text,
        add column windows text not null default '[]'
    """,
    "alter table workers add column gpus text not null default ''",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
