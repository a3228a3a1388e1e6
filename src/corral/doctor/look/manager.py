"""Asks a manager over its public API: with a user's key, or as one of its nodes."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from corral.agent.link.identity import Identity
from corral.client import Client, Patience
from corral.client.http.endpoint import Flow, get, segment
from corral.doctor.judge.manager import ManagerFact, NodeFact
from corral.errors import AuthError, CorralError
from corral.wire.nodes import NodeInfo

_TIMEOUT_S = 3.0
_ENOUGH = 100
# Once: what does not answer now is a finding.
_ONCE = Patience(total_s=0.0, first_s=0.0)


def look(url: str | None, home: Path | None, *, is_expected: bool) -> ManagerFact:
    """What the manager of this user tells; `url` and `home` as for a client."""
    with Client(url, home=home, timeout_s=_TIMEOUT_S, patience=_ONCE) as client:
        told = ManagerFact(client.url, is_expected=is_expected)
        try:
            told = _health(client, told)
            nodes = [_node(node) for node in client.nodes()]
            failed = [w.name or w.worker_id for w in client.workers(status="error")]
            dead = len(list(client.list_tasks(dead=True, limit=_ENOUGH)))
        except CorralError as error:
            return _fault(told, error)
        return replace(told, nodes=nodes, failed=failed, dead_letters=dead)


def _node(node: NodeInfo) -> NodeFact:
    quarantined = tuple(
        f"{card.get('name')} ({(card.get('quarantine') or {}).get('reason', 'unfit')})"
        for card in node.gpus
        if card.get("health") == "quarantined"
    )
    broken = tuple(str(breaker.get("key")) for breaker in node.breakers)
    return NodeFact(
        node.hostname or node.node_id,
        node.status,
        node.version,
        quarantined,
        broken,
        node.clock_skew_s,
    )


def look_as_node(who: Identity) -> ManagerFact:
    """What the manager tells one of its nodes."""
    url, key = who.manager_url, who.key
    with Client(url, key, timeout_s=_TIMEOUT_S, patience=_ONCE) as client:
        told = ManagerFact(client.url, is_expected=True, node_id=who.node_id)
        try:
            told = _health(client, told)
            client.drive(_desired(who.node_id))
        except CorralError as error:
            return _fault(told, error)
        return told


def _desired(node_id: str) -> Flow[None]:
    yield get(f"/nodes/{segment(node_id)}/desired")


def _fault(told: ManagerFact, error: CorralError) -> ManagerFact:
    if isinstance(error, AuthError) or told.version:
        return replace(told, refusal=error.message)
    return replace(told, silence=error.message)


def _health(client: Client, told: ManagerFact) -> ManagerFact:
    # The first call also makes the connection: the second shows the way there.
    client.health()
    began, steady = time.time(), time.monotonic()
    health = client.health()
    took_s = time.monotonic() - steady
    ahead_s = None
    if health.timestamp is not None:
        ahead_s = health.timestamp.timestamp() - (began + took_s / 2)
    return replace(told, version=health.version, latency_s=took_s, ahead_s=ahead_s)
