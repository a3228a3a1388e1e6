"""How many tasks of a type go to one worker at once."""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("alter table job_types add column batch_limit integer")
