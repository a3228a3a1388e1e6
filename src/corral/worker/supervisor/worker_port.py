"""A worker's own port: the job API's calls of a worker, passed on to the manager.

A job run here is a task like any other, which the manager gives to this worker alone.
The manager itself shows the worker's token instead of a key; then the node's own
credential speaks for it, with the pass that came along: alone it submits nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import msgspec

from corral.relay import port
from corral.relay.app import (
    PortAnswer,
    PortRequest,
    Relay,
    RelayedManager,
    problem,
    told,
)
from corral.trust import is_this_machine

# A worker that took over a port may have to wait for its former owner to leave it.
PATIENCE_S = 10.0
_LIVE = ("queued", "running")


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Who this worker is; `status` tells (status, id of the job it runs)."""

    worker_id: str
    url: str
    class_name: str
    token: str = field(repr=False)
    node_key: str = field(repr=False)
    status: Callable[[], tuple[str, str | None]]


class _Outcome(msgspec.Struct):
    job_id: str
    status: str
    output: msgspec.Raw


class WorkerPort(Relay):
    def __init__(self, card: WorkerIdentity, manager: RelayedManager) -> None:
        endpoints = {
            "start": self._if_known(lambda: None),
            "get_status": self._if_known(self._status),
            "run": self._run,
            "connect_to_cluster": self._connect,
            "shutdown": self._shut_down,
        }
        super().__init__(
            manager, card.class_name, lambda: card.worker_id, endpoints, card.url
        )
        self._card = card

    def open(self, *, allow_plaintext: bool = False) -> None:
        """Listen on the worker's port.

        Raises:
            AlreadyRunning: somebody else has it.
            SettingsError: it would be open to the network.
        """
        url = self._card.url
        port.serve(self, port.listen(url, PATIENCE_S, allow_plaintext=allow_plaintext))

    async def check(self, call: PortRequest) -> PortAnswer:
        return told(None) if self._is_manager(call) else await super().check(call)

    def _is_manager(self, call: PortRequest) -> bool:
        shown = (call.key or "").encode("utf-8", "replace")
        return hmac.compare_digest(shown, f"Bearer {self._card.token}".encode())

    def _status(self) -> dict[str, str | None]:
        status, job_id = self._card.status()
        return {"worker_id": self._card.worker_id, "status": status, "job_id": job_id}

    async def _run(self, call: PortRequest) -> PortAnswer:
        key = call.key
        if self._is_manager(call):
            key = f"Bearer {self._card.node_key}"
        body = {"worker_id": self._card.worker_id, "job": call.body}
        answer = await self.manager.post("/run_on_worker", body, key, call.call_pass)
        while answer.is_good:
            done = msgspec.json.decode(answer.body, type=_Outcome)
            if done.status not in _LIVE:
                return told({"status": done.status, "output": done.output})
            rest = {"worker_id": self._card.worker_id, "job_id": done.job_id}
            answer = await self.manager.post("/run_on_worker", rest, key)
        return answer

    async def _connect(self, call: PortRequest) -> PortAnswer:
        """`backend_args` name a broker of their own; ours is the manager's affair."""
        known = await self.check(call)
        if not known.is_good:
            return known
        job_type, cluster = call.body.get("queue_name"), call.body.get("cluster_url")
        if not isinstance(job_type, str):
            return problem(422, "invalid_field", "queue_name must be a job type's name")
        if isinstance(cluster, str) and not _is_one(cluster, self.manager.url):
            text = f"this worker belongs to the cluster at {self.manager.url}"
            return problem(409, "conflict", text)
        body = {"job_type": job_type, "worker_url": self._card.url}
        return await self.manager.post("/register_job_to_worker", body, call.key)

    async def _shut_down(self, call: PortRequest) -> PortAnswer:
        body = {"worker_id": self._card.worker_id}
        answer = await self.manager.post("/shutdown_worker_by_id", body, call.key)
        return told({"shutdown": True}) if answer.is_good else answer


def _is_one(one: str, other: str) -> bool:
    """Do both URLs name the same manager?"""
    try:
        first, second = urlsplit(one), urlsplit(other)
        ports = first.port == second.port
    except ValueError:
        return False
    if is_this_machine(one) and is_this_machine(other):
        return ports
    return ports and first.hostname == second.hostname
