"""A node's own port: the job API's calls of a node, passed on to the manager.

Opened only for a node that was given a URL. Nothing of the node is changed from here:
what the manager then wants of it comes the usual way.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

from corral.relay import port
from corral.relay.app import PortAnswer, PortRequest, Relay, RelayedManager, problem

CALLS = (
    "launch_worker",
    "launch_worker_status",
    "shutdown_worker",
    "shutdown_worker_by_id",
    "shutdown_worker_by_port",
    "shutdown_all_workers",
)


class NodePort:
    """`node_id` is set once the node has joined; before, nothing can be asked of it."""

    def __init__(self, manager_url: str, ca_file: Path | None = None) -> None:
        self.node_id = ""
        self._manager = RelayedManager(manager_url, ca_file)

    def serve(self, opened: socket.socket, url: str) -> None:
        endpoints = dict.fromkeys(CALLS, self._pass_on)
        relay = Relay(
            self._manager,
            "Node",
            lambda: self.node_id,
            {**endpoints, "shutdown": self._shut_down},
            url,
        )
        port.serve(relay, opened)

    async def _pass_on(self, call: PortRequest) -> PortAnswer:
        return await self._ask(call.name, call)

    async def _shut_down(self, call: PortRequest) -> PortAnswer:
        return await self._ask("shutdown_node", call)

    async def _ask(self, name: str, call: PortRequest) -> PortAnswer:
        if not self.node_id:
            return problem(503, "unavailable", "this node has not joined yet")
        body = {**call.body, "node_url": self.node_id}
        return await self._manager.post(f"/{name}", body, call.key)


@contextlib.contextmanager
def opened(
    url: str, manager_url: str, ca_file: Path | None, *, allow_plaintext: bool = False
) -> Iterator[NodePort]:
    """The face of a node, on its port when its URL has one of ours.

    Raises:
        AlreadyRunning: somebody else has that port.
        SettingsError: it would be open to the network.
    """
    face = NodePort(manager_url, ca_file)
    if not port.has_port(url):
        yield face
        return
    with port.listen(url, allow_plaintext=allow_plaintext) as listening:
        face.serve(listening, url)
        yield face
