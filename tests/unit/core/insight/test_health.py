"""The rules of health, each on a picture of a cluster in which it holds or does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from corral.core.insight.health import (
    CLUSTER,
    ClusterSnapshot,
    EndedAttempts,
    Finding,
    Health,
    NodeReading,
    OpenBreaker,
    Severity,
    Thresholds,
    health_of,
)
from corral.core.insight.health_rule import BY_NAME, RULES, STORE_DOWN, judge
from corral.core.nodes.gpu import Gpu, Quarantine
from corral.core.nodes.node import NodeRecord, NodeState, Sample
from corral.core.nodes.worker import WorkerRecord, WorkerSpec

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODE = NodeRecord("n1", "box", epoch=1)
SAMPLE = Sample(
    8, 10.0, 1000.0, 100.0, 100.0, 10.0, 1, 1, 0.1, 0.1, 0.1, node_id="n1", at=NOW
)
CARD = Gpu("GPU-1", "nvidia", "H200", memory_total_mb=1000.0, memory_used_mb=100.0)
BROKEN = WorkerRecord(
    "w1", "n1", WorkerSpec("echo", "a:B", ("echo",)), error="no\x00module"
)
HELD = Quarantine("too many errors", NOW, NOW)


def reading(**more: Any) -> NodeReading:
    sample = replace(SAMPLE, **more.pop("sample", {}))
    card = replace(CARD, **more.pop("card", {}))
    node = replace(NODE, **more.pop("node", {}))
    return NodeReading(node, sample, (card,), **more)


def cluster(*nodes: NodeReading, **more: Any) -> ClusterSnapshot:
    return ClusterSnapshot(nodes=nodes or (reading(),), **more)


def found(snapshot: ClusterSnapshot, limits: Thresholds | None = None) -> list[Finding]:
    return judge(snapshot, limits or Thresholds())


def test_nothing_is_wrong_with_a_quiet_cluster() -> None:
    assert found(cluster(ended=EndedAttempts(1000, 10))) == []
    assert found(ClusterSnapshot()) == []


@pytest.mark.parametrize(
    ("rule", "subject", "severity", "snapshot"),
    [
        ("mass_loss", CLUSTER, "critical", cluster(is_mass_loss=True)),
        ("engine_down", CLUSTER, "critical", cluster(is_engine_up=False)),
        ("audit_broken", CLUSTER, "critical", cluster(audit_fault="row 3 is missing")),
        ("node_cpu", "n1", "info", cluster(reading(sample={"cpu_percent": 99.0}))),
        (
            "node_memory",
            "n1",
            "warning",
            cluster(reading(sample={"memory_used_mb": 910.0})),
        ),
        (
            "node_memory",
            "n1",
            "critical",
            cluster(reading(sample={"memory_used_mb": 960.0})),
        ),
        ("node_disk", "n1", "warning", cluster(reading(sample={"disk_used_gb": 93.0}))),
        (
            "node_disk",
            "n1",
            "critical",
            cluster(reading(sample={"disk_used_gb": 99.0})),
        ),
        (
            "gpu_temperature",
            "GPU-1",
            "warning",
            cluster(reading(card={"temperature_c": 88.0})),
        ),
        (
            "gpu_temperature",
            "GPU-1",
            "critical",
            cluster(reading(card={"temperature_c": 95.0})),
        ),
        (
            "gpu_memory",
            "GPU-1",
            "info",
            cluster(reading(card={"memory_used_mb": 900.0})),
        ),
        ("gpu_failed", "GPU-1", "error", cluster(reading(card={"error": "it hangs"}))),
        ("gpu_failed", "GPU-1", "error", cluster(reading(card={"quarantine": HELD}))),
        ("queue_depth", CLUSTER, "warning", cluster(waiting=10_000)),
        ("error_rate", CLUSTER, "error", cluster(ended=EndedAttempts(20, 5))),
        ("unserved", "resize", "error", cluster(unserved={"resize": 3})),
        ("worker_error", "w1", "warning", cluster(broken=(BROKEN,))),
        (
            "breaker_open",
            "n1/mine:B",
            "error",
            cluster(breakers=(OpenBreaker("n1", "mine:B", "5 failures"),)),
        ),
        ("clock_skew", "n1", "warning", cluster(reading(skew_s=-7.0))),
    ],
)
@pytest.mark.spec("C38")
def test_each_rule_finds_what_it_is_for(
    rule: str, subject: str, severity: str, snapshot: ClusterSnapshot
) -> None:
    (finding,) = found(snapshot)
    assert (finding.rule, finding.subject, finding.severity) == (
        rule,
        subject,
        severity,
    )
    assert finding.is_over
    assert finding.title.isprintable()
    assert finding.node_id == (None if subject in (CLUSTER, "resize") else "n1")
    row = BY_NAME[rule]
    assert finding.severity in (row.severity, row.worst)
    assert (finding.limit is not None) == (row.limit is not None)


def test_a_lost_node_is_an_error_and_the_last_one_critical() -> None:
    lost = reading(node={"state": NodeState.LOST})
    other = reading(node={"id": "n2"}, sample={"node_id": "n2"})
    (one,) = found(cluster(lost, other))
    assert (one.rule, one.subject, one.severity) == ("node_lost", "n1", "error")
    (last,) = found(cluster(lost))
    assert last.severity is Severity.CRITICAL


@pytest.mark.parametrize("node", [{"state": NodeState.LEFT}, {"epoch": 0}])
def test_a_node_that_left_or_never_came_is_not_lost(node: dict[str, Any]) -> None:
    state = node.get("state", NodeState.LOST)
    assert found(cluster(reading(node={"state": state, **node}))) == []


def test_a_node_that_left_is_not_looked_at() -> None:
    gone = reading(
        node={"state": NodeState.LEFT},
        sample={"disk_used_gb": 99.0},
        card={"error": "gone"},
        skew_s=100.0,
    )
    assert found(cluster(gone)) == []
    assert cluster(gone).unheard == frozenset()


@pytest.mark.parametrize(("used", "over"), [(85.0, None), (86.0, False), (90.0, True)])
def test_below_its_limit_a_figure_only_keeps_an_alert_open(
    used: float, over: bool | None
) -> None:
    findings = found(cluster(reading(sample={"disk_used_gb": used})))
    assert [f.is_over for f in findings] == ([] if over is None else [over])


def test_what_a_driver_or_a_node_does_not_tell_is_not_wrong() -> None:
    silent = NodeReading(NODE, None, None, is_heard=False)
    empty = reading(
        sample={"disk_total_gb": 0.0, "memory_total_mb": 0.0},
        card={"memory_used_mb": None, "memory_total_mb": None},
    )
    assert found(cluster(silent, empty)) == []
    assert cluster(silent).unheard == {"n1"}
    assert cluster(empty).unheard == frozenset()


def test_few_ended_attempts_say_nothing_and_change_nothing_while_all_is_young() -> None:
    assert found(cluster(ended=EndedAttempts(19, 19))) == []
    (unknown,) = found(cluster(ended=EndedAttempts(0, 0, is_full=False)))
    assert (unknown.rule, unknown.is_over) == ("error_rate", False)
    assert found(cluster(ended=EndedAttempts(100, 18))) == []
    (near,) = found(cluster(ended=EndedAttempts(1000, 195)))
    assert not near.is_over


def test_health_is_that_of_the_worst_finding() -> None:
    def health(*severities: Severity) -> Health:
        return health_of(replace(STORE_DOWN, severity=s) for s in severities)

    assert health() is Health.HEALTHY
    assert health(Severity.INFO) is Health.HEALTHY
    assert health(Severity.INFO, Severity.WARNING) is Health.DEGRADED
    assert health(Severity.ERROR) is Health.DEGRADED
    assert health(Severity.CRITICAL, Severity.INFO) is Health.CRITICAL


def test_the_table_can_be_read() -> None:
    assert len(BY_NAME) == len(RULES)
    assert all(rule.looks_at for rule in RULES)
    limits = Thresholds()
    assert all(getattr(limits, r.limit) > 0 for r in RULES if r.limit)
    ranks = [(r.worst or r.severity).rank - r.severity.rank for r in RULES]
    assert min(ranks) >= 0
    assert Severity.ERROR.and_worse == (Severity.ERROR, Severity.CRITICAL)
