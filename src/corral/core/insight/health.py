"""How healthy a cluster is: the picture that is judged, and what a finding is.

Pure: no clock and no I/O. The rules stand in `core/insight/health_rule.py`; whether a
finding lasts long enough to be told is decided in `core/insight/alert.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from corral.core.nodes.clock_skew import ALARM_S
from corral.core.nodes.gpu import Gpu
from corral.core.nodes.node import NodeRecord, NodeState, Sample
from corral.core.nodes.worker import WorkerRecord

CLUSTER = "cluster"
"""The subject of what is wrong with no node, card or worker in particular."""
_TITLE_LENGTH = 300


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)

    @property
    def and_worse(self) -> tuple[Severity, ...]:
        return tuple(Severity)[self.rank :]


class Health(StrEnum):
    HEALTHY = "healthy"
    DEGRADED = "degraded"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The figures from which on something is wrong.

    An alert that is open ends below `clear_share` of its limit.
    """

    cpu_percent: float = 98.0
    memory_percent: float = 90.0
    disk_percent: float = 90.0
    temperature_c: float = 87.0
    gpu_memory_percent: float = 80.0
    queue_depth: float = 10_000.0
    error_rate: float = 0.2
    skew_s: float = ALARM_S
    clear_share: float = 0.95


@dataclass(frozen=True, slots=True)
class NodeReading:
    """A node and its last word; None for what it has not told.

    `is_heard` is false until it has told how it is since the manager started.
    """

    node: NodeRecord
    sample: Sample | None = None
    gpus: Sequence[Gpu] | None = None
    skew_s: float | None = None
    is_heard: bool = True

    @property
    def name(self) -> str:
        return self.node.hostname or self.node.id


@dataclass(frozen=True, slots=True)
class OpenBreaker:
    """A circuit breaker that keeps work from something on a node."""

    node_id: str
    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class EndedAttempts:
    """How many attempts ended lately, and how many of them failed.

    While the window is not yet `is_full`, few of them prove nothing either way.
    """

    count: int = 0
    failed: int = 0
    is_full: bool = True


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The cluster at one moment; `broken` are its workers in error."""

    nodes: tuple[NodeReading, ...] = ()
    broken: tuple[WorkerRecord, ...] = ()
    breakers: tuple[OpenBreaker, ...] = ()
    waiting: int = 0
    unserved: Mapping[str, int] = field(default_factory=dict)
    ended: EndedAttempts = EndedAttempts()
    is_mass_loss: bool = False
    is_engine_up: bool = True
    audit_fault: str = ""

    @property
    def unheard(self) -> frozenset[str]:
        """Nodes that are lost, or have not told how they are since the start."""
        return frozenset(
            r.node.id
            for r in self.present()
            if not r.is_heard or r.node.state is NodeState.LOST
        )

    def present(self) -> Iterator[NodeReading]:
        """Those that should be there, lost ones too."""
        return (r for r in self.nodes if r.node.state is not NodeState.LEFT)


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """Something that is wrong, by a rule, with a subject of its own."""

    rule: str
    subject: str
    severity: Severity
    title: str = ""
    value: float | None = None
    limit: float | None = None
    node_id: str | None = None


@dataclass(frozen=True, slots=True)
class Finding(HealthProblem):
    """Something is wrong, or with `is_over` false: nearly so.

    One that is nearly so raises no alert, but keeps one open.
    """

    is_over: bool = True

    @property
    def key(self) -> tuple[str, str]:
        return self.rule, self.subject


Look = Callable[[ClusterSnapshot, Thresholds], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table.

    Attributes:
        looks_at: What it judges, in words.
        severity: How bad a finding is at first.
        worst: What it may become.
        is_at_once: It is told without waiting whether it lasts.
        is_told_by_node: Until its node has spoken, nothing is known about it.
        limit: The name of its limit among the thresholds.
    """

    name: str
    looks_at: str
    severity: Severity
    look: Look
    worst: Severity | None = None
    is_at_once: bool = False
    is_told_by_node: bool = False
    limit: str | None = None


def health_of(findings: Iterable[Finding]) -> Health:
    """How healthy a cluster with these findings is."""
    worst = max((finding.severity.rank for finding in findings), default=0)
    if worst >= Severity.CRITICAL.rank:
        return Health.CRITICAL
    return Health.DEGRADED if worst >= Severity.WARNING.rank else Health.HEALTHY


def line(text: str) -> str:
    """Names come from elsewhere: one printable line of them."""
    return "".join(c if c.isprintable() else " " for c in text)[:_TITLE_LENGTH]
