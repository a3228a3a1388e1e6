"""What a task is told of the GPUs it was given and of the others of its gang."""

from __future__ import annotations

from collections.abc import Sequence

from corral.core.nodes.gpu_bind import visible
from corral.core.tasks.gang import gang_of, variables
from corral.core.tasks.task import Task
from corral.manager.cluster.state import Cluster, WorkerLink


def given(
    cluster: Cluster, link: WorkerLink, task: Task, cards: Sequence[str], lead: str
) -> dict[str, str] | None:
    """The variables that show a task its GPUs and the others of its gang."""
    shown: dict[str, str] = {}
    node = cluster.nodes.get(link.worker.node_id)
    if cards:
        known = {gpu.id: gpu for gpu in (node.gpus if node else None) or ()}
        shown = visible([known[card] for card in cards if card in known])
        shown["CORRAL_GPUS"] = ",".join(cards)
    gang = gang_of(task.spec.labels)
    if gang is not None:
        first = cluster.link(lead) or link
        host = cluster.nodes.get(first.worker.node_id)
        address = (host.node.address if host else None) or "127.0.0.1"
        shown |= variables(gang, address, task.attempt, len(cards))
    return shown or None
