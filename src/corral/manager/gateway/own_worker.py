"""Which URLs lead to workers of ours, and the token each of them takes from us.

A token opens that one worker's port and nothing else; it is derived, not stored, and
shown to nobody but its worker.
"""

from __future__ import annotations

import httpx

from corral.core.nodes.worker import WorkerState
from corral.manager.access.derived_keys import worker_token
from corral.manager.cluster.state import Cluster, WorkerLink
from corral.trust import is_this_machine

_LIVING = (WorkerState.READY, WorkerState.BUSY)


class OwnWorkers:
    def __init__(self, cluster: Cluster, cluster_secret: bytes) -> None:
        self._cluster = cluster
        self._secret = cluster_secret

    def token_for(self, url: httpx.URL) -> str | None:
        """The token of the worker that has this address; None when it is a stranger."""
        for link in self._cluster.workers.values():
            if link.worker.state in _LIVING and self._is_at(link, url):
                return worker_token(self._secret, link.id)
        return None

    def _is_at(self, link: WorkerLink, url: httpx.URL) -> bool:
        try:
            own = httpx.URL(link.worker.spec.url or "")
        except httpx.InvalidURL:
            return False
        if (own.scheme, own.port) != (url.scheme, url.port) or not own.host:
            return False
        if not is_this_machine(str(own)):
            return own.host == url.host
        # Every machine has a localhost: the worker must be on ours.
        node = self._cluster.nodes.get(link.worker.node_id)
        address = node.node.address if node else None
        is_near = address is not None and is_this_machine(_url_of(address))
        return is_near and is_this_machine(str(url))


def _url_of(address: str) -> str:
    return f"http://[{address}]" if ":" in address else f"http://{address}"
