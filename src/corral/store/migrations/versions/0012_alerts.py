"""An index for the few events that are alerts."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "create index cluster_events_alerts on cluster_events (seq)"
        " where event_type = 'alert'"
    )
