"""Lines about the manager, its nodes, workers and dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from corral.core.nodes.clock_skew import ALARM_S
from corral.doctor.judge.machine import SET_CLOCK, clock
from corral.doctor.judge.version import skew
from corral.doctor.result import CheckResult, ok, problem, warn

NAME = "manager"
_FEW = 3


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

    `is_expected`: it was named by a setting, or runs on this folder.
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
        yield clock("the manager", told.ahead_s, told.latency_s)
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
        yield from _node(node, ours)
    if told.failed:
        found = f"{len(told.failed)} in error: {_some(told.failed)}"
        yield problem("workers", found, "see why with 'corral workers --status error'")
    if told.dead_letters:
        more = " or more" if told.dead_letters >= 100 else ""
        found = f"{told.dead_letters}{more} tasks failed for good"
        yield warn("dead letters", found, "look through them with 'corral dlq list'")


def _node(node: NodeFact, ours: str) -> Iterator[CheckResult]:
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
