"""Names nodes that have a model's files to a node that wants them.

Only those take part whose administrators allow it, in giving and in taking.
"""

from __future__ import annotations

from datetime import datetime

from corral.core.models.catalogue import CatalogueModel
from corral.core.nodes.node import NodeState
from corral.core.nodes.peer import Peer, file_path, mark_of
from corral.manager.cluster.state import Cluster
from corral.trust import is_this_machine

SIGNED_S = 6 * 3600
MOST = 2
"""So many are named: who gets nowhere there comes to us."""


def peers_of(
    cluster: Cluster, model: CatalogueModel, node_id: str, now: datetime
) -> dict[str, list[str]]:
    """Addresses on other nodes by file, signed for some hours."""
    taker = cluster.nodes.get(node_id)
    if taker is None or taker.peer is None or not model.files:
        return {}
    givers = [
        giver
        for giver in _givers(cluster, model, node_id)
        # An address that means every machine itself is good on that machine alone.
        if is_this_machine(taker.peer.url) or not is_this_machine(giver.url)
    ][:MOST]
    until = int(now.timestamp()) + SIGNED_S
    return {
        file.name: [
            giver.url + file_path(giver.secret, file.sha256, until) for giver in givers
        ]
        for file in model.files
        if givers and file.size
    }


def _givers(cluster: Cluster, model: CatalogueModel, node_id: str) -> list[Peer]:
    mark = mark_of((file.sha256, file.name) for file in model.files)
    having = sorted(
        id_
        for id_, link in cluster.nodes.items()
        if id_ != node_id
        and link.peer is not None
        and link.node.state is NodeState.ONLINE
        and link.peer.models.get(model.name) == mark
    )
    # Takers begin at different places: the first node is not everybody's.
    first = sum(node_id.encode()) % len(having) if having else 0
    chosen = having[first:] + having[:first]
    return [p for id_ in chosen if (p := cluster.nodes[id_].peer) is not None]
