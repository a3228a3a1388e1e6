"""Events of the cluster and of a node are found among many more of tasks."""

from __future__ import annotations

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

OTHER = """
create index cluster_events_other on cluster_events (seq)
    where not starts_with(event_type, 'tasks_')
"""
OF_NODE = """
create index cluster_events_node on cluster_events (source_node_id, seq)
    where source_node_id is not null
"""


def upgrade() -> None:
    op.execute(OTHER)
    op.execute(OF_NODE)
