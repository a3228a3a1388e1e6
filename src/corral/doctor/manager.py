"""The manager, as its API shows it: with a user's key, or to one of its nodes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from corral import __version__
from corral.agent.link.identity import Identity
from corral.client import Client, Patience
from corral.client.http.endpoint import Flow, get, segment
from corral.core.nodes.clock_skew import ALARM_S
from corral.core.nodes.version import VersionFit, fit
from corral.doctor.check import CheckResult, ok, problem, warn
from corral.doctor.machine import SET_CLOCK, judge_clock
from corral.doctor.role import Role
from corral.errors import AuthError, CorralError
from corral.wire.nodes import NodeInfo

if TYPE_CHECKING:
    from corral.settings import Settings

NAME = "manager"
_FEW = 3
_TIMEOUT_S = 3.0
_ENOUGH = 100
# Once: what does not answer now is a finding.
_ONCE = Patience(total_s=0.0, first_s=0.0)


def check(
    config: Settings, role: Role, url: str | None, home: Path | None
) -> Iterator[CheckResult]:
    """The manager of this user; `url` and `home` as given on the command line."""
    is_expected = "manager_url" in config.origins or role.is_running
    return judge(look(url, home, is_expected=is_expected), __version__)


def check_as_nodes(role: Role) -> Iterator[CheckResult]:
    """The managers of the nodes that this machine is."""
    for node in role.nodes:
        yield from judge(look_as_node(node.identity), __version__)


@dataclass(frozen=True, slots=True)
class NodeFact:
    """`quarantined` are cards that are left alone, each with its reason.

    `broken` are workers kept from starting by a breaker; `ahead_s` is the node's clock
    against the manager's.
    """

    name: str
    status: str
    version: str | None = None
    quarantined: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    ahead_s: float | None = None


@dataclass(frozen=True, slots=True)
class ManagerFact:
    """What the manager told; `silence` says why it told nothing, `refusal` why the
    key was not enough. `ahead_s` is its clock against ours.

    `is_expected`: it was named by a setting, or runs on this folder. Only an admin is
    told whether the audit trail is intact.
    """

    url: str
    version: str = ""
    silence: str | None = None
    refusal: str | None = None
    is_expected: bool = False
    ahead_s: float | None = None
    latency_s: float = 0.0
    nodes: Sequence[NodeFact] = ()
    failed: Sequence[str] = ()
    dead_letters: int = 0
    node_id: str | None = None
    is_audit_intact: bool | None = None


def look(url: str | None, home: Path | None, *, is_expected: bool) -> ManagerFact:
    """What the manager of this user tells; `url` and `home` as for a client."""
    with Client(url, home=home, timeout_s=_TIMEOUT_S, patience=_ONCE) as client:
        told = ManagerFact(client.url, is_expected=is_expected)
        try:
            told = _health(client, told)
            nodes = [_node_fact(node) for node in client.nodes()]
            failed = [w.name or w.worker_id for w in client.workers(status="error")]
            dead = len(list(client.list_tasks(dead=True, limit=_ENOUGH)))
        except CorralError as error:
            return _fault(told, error)
        told = replace(told, nodes=nodes, failed=failed, dead_letters=dead)
        with contextlib.suppress(CorralError):
            return replace(told, is_audit_intact=client.audit(limit=1).is_intact)
        return told


def _node_fact(node: NodeInfo) -> NodeFact:
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


def judge(told: ManagerFact, ours: str) -> Iterator[CheckResult]:
    """Lines about one manager; `ours` is the version of this Corral."""
    if told.silence is not None:
        yield _silent(told)
        return
    if told.refusal is not None:
        fix = "set CORRAL_API_KEY, or --home to a folder whose admin.key you may read"
        if told.node_id:
            fix = "make a token with 'corral token create' there and join again"
        yield problem(NAME, f"{told.url} answers, but: {told.refusal}", fix)
    else:
        found = f"{told.url} answers in {told.latency_s * 1000:.0f} ms, version "
        found += f"{told.version}, and accepts "
        found += f"node {told.node_id}" if told.node_id else "the key"
        yield ok(NAME, found, version=told.version)
    if line := skew(f"the manager at {told.url}", told.version, ours):
        yield line
    if told.ahead_s is not None:
        yield judge_clock("the manager", told.ahead_s, told.latency_s)
    if told.refusal is None and told.node_id is None:
        yield from _cluster(told, ours)


def _silent(told: ManagerFact) -> CheckResult:
    found, _, advice = (told.silence or "").partition(": ")
    if told.is_expected:
        return problem(NAME, found, advice or "is it still up?")
    return warn(NAME, f"no manager runs at {told.url}", "start one with 'corral up'")


def _cluster(told: ManagerFact, ours: str) -> Iterator[CheckResult]:
    away = [n.name for n in told.nodes if n.status in ("offline", "suspect")]
    if away:
        found = f"{len(away)} of {len(told.nodes)} do not answer: {_some(away)}"
        fix = "run 'corral doctor' there, or start their agents again"
        yield problem("nodes", found, fix)
    elif told.nodes:
        yield ok("nodes", f"{len(told.nodes)}, all heard of")
    else:
        yield warn("nodes", "none has joined", "'corral token create', 'corral join'")
    for node in told.nodes:
        yield from _judge_node(node, ours)
    if told.failed:
        found = f"{len(told.failed)} in error: {_some(told.failed)}"
        yield problem("workers", found, "see why with 'corral workers --status error'")
    if told.is_audit_intact is False:
        found = "rows of the audit trail were changed or removed"
        fix = "see which with 'corral audit --verify', and who may write the database"
        yield problem("audit", found, fix)
    elif told.is_audit_intact:
        yield ok("audit", "its chain is whole")
    if told.dead_letters:
        more = " or more" if told.dead_letters >= 100 else ""
        found = f"{told.dead_letters}{more} tasks failed for good"
        yield warn("dead letters", found, "look through them with 'corral dlq list'")


def _judge_node(node: NodeFact, ours: str) -> Iterator[CheckResult]:
    """What is wrong with one node that answers."""
    if line := skew(f"node {node.name}", node.version, ours):
        yield line
    for card in node.quarantined:
        found = f"{card} of node {node.name} is in quarantine"
        yield problem("gpu", found, "see 'dmesg' there, and reset or replace it")
    if node.broken:
        found = f"kept from starting on node {node.name}: {_some(node.broken)}"
        yield problem("workers", found, "see why with 'corral breaker list'")
    if node.ahead_s is not None and abs(node.ahead_s) > ALARM_S:
        found = f"that of node {node.name} is {abs(node.ahead_s):.0f} s "
        found += f"{'ahead of' if node.ahead_s > 0 else 'behind'} the manager's"
        yield warn("clock", found, SET_CLOCK)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_FEW])
    return shown if len(names) <= _FEW else f"{shown} and {len(names) - _FEW} more"


def skew(whose: str, theirs: str | None, ours: str) -> CheckResult | None:
    """A line when two versions are not the same; one minor version is tolerated."""
    if not theirs or theirs == ours:
        return None
    found = f"{whose} has version {theirs}, this machine {ours}"
    match fit(theirs, ours):
        case VersionFit.SAME:
            return ok("version", found)
        case VersionFit.APART:
            return problem("version", found, "install the same version on both")
        case _:
            return warn("version", found, "works, but install the same version soon")
