"""Who may have a secret and where; what join tokens allow; sessions that were ended;
an audit chain with a key.
"""

from __future__ import annotations

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

# What was written before has no key: rows from `keyed_from` on have one, and an empty
# seal says that the first manager with one has still to put it on.
_STATEMENTS = (
    "alter table secrets add column keys text[] not null default '{}'",
    "alter table secrets add column node_labels text not null default '{}'",
    "alter table keys add column granted text",
    "create table ended_sessions (id text primary key, until timestamptz not null)",
    "alter table audit_chain add column keyed_from bigint not null default 0",
    "alter table audit_chain add column seal text not null default ''",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("restore a backup from before the upgrade instead")
