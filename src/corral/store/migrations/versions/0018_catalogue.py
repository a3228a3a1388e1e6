"""The catalogue of models: where their files are, and what was seen of them."""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

TABLE = """
create table catalogue (
    name text primary key,
    model_type text not null,
    source text not null,
    wanted text not null default '',
    revision text not null default '',
    files text not null default '[]',
    status text not null,
    error text,
    trust_remote_code boolean not null default false,
    dtype text,
    memory_mb double precision,
    tags text[] not null default '{}',
    created_at timestamptz,
    uses bigint not null default 0,
    last_used_at timestamptz,
    measures text not null default '[]'
)
"""


def upgrade() -> None:
    op.execute(TABLE)
