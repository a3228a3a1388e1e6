"""From nodes to the answers' shapes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from corral import __version__
from corral.core.nodes.breaker import BreakerReport
from corral.core.nodes.gpu import Gpu
from corral.core.nodes.node import NodeRecord, Sample, Window
from corral.core.nodes.version import fit
from corral.manager.cluster.state import NodeLink, WorkerLink
from corral.manager.nodes.holds import scheduling
from corral.manager.nodes.windows import next_start
from corral.wire.nodes import HoldInfo, NodeInfo, NodeList, WindowInfo


class NodeOut(NodeInfo, frozen=True, kw_only=True):
    """A node, with its cards and breakers described as well."""

    gpus: list[Gpu]
    breakers: list[BreakerReport]


class NodeListOut(NodeList, frozen=True, kw_only=True):
    nodes: list[NodeOut]  # type: ignore[assignment]


def _percent(used: float, total: float) -> float | None:
    return 100 * used / total if total > 0 else None


def window(row: Window, now: datetime) -> WindowInfo:
    return WindowInfo.of(row, duration=row.duration_s, next_at=next_start(row, now))


def node(link: NodeLink, workers: Sequence[WorkerLink], now: datetime) -> NodeOut:
    row: NodeRecord = link.node
    sample: Sample | None = link.sample
    lead = link.clock.seconds
    return NodeOut(
        node_id=row.id,
        hostname=row.hostname,
        node_type=row.node_type,
        status=str(row.state),
        address=row.address,
        version=row.version,
        labels=row.all_labels,
        capabilities=row.capabilities,
        joined_at=row.joined_at,
        last_heartbeat=row.last_heartbeat,
        workers=len(workers),
        cpu_percent=sample.cpu_percent if sample else None,
        memory_percent=(
            _percent(sample.memory_used_mb, sample.memory_total_mb) if sample else None
        ),
        disk_percent=(
            _percent(sample.disk_used_gb, sample.disk_total_gb) if sample else None
        ),
        load_1m=sample.load_1m if sample else None,
        gpus=list(link.gpus or ()),
        scheduling=scheduling(link, workers),
        holds=[HoldInfo.of(hold) for hold in link.holds],
        taints=sorted(row.all_taints),
        running_tasks=sum(len(o.left) for w in workers for o in w.orders.values()),
        windows=[window(w, now) for w in row.windows],
        breakers=list(link.breakers or ()),
        clock_skew_s=None if lead is None else round(lead, 3),
        version_skew=fit(row.version, __version__).skew,
        shares_models=sorted(link.peer.models) if link.peer else None,
    )
