"""Which objects were sent to be run, apart from those that tasks left behind."""

from __future__ import annotations

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

# Until here any object could be run: what tasks that are known have run goes on.
_RUN_BEFORE = """
insert into code_objects (digest, owner, at)
select distinct m[1], '', now() from (
    select payload from tasks where job_type in ('function', 'run_script')
    union all select task from schedules
) as told (payload),
regexp_matches(told.payload, '(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])', 'g') m
"""


def upgrade() -> None:
    op.execute(
        "create table code_objects (digest text primary key, owner text not null, "
        "at timestamptz not null)"
    )
    op.execute(_RUN_BEFORE)


def downgrade() -> None:
    raise NotImplementedError("restore a backup from before the upgrade instead")
