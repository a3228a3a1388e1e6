"""The JSON shapes of nodes (docs/design/wire.md).

First what operators say and see of them: holds, windows, labels, taints. Then what
agents and the manager tell each other.
"""

from __future__ import annotations

from msgspec import Struct

from corral.core.nodes.breaker import BreakerReport
from corral.core.nodes.gpu import Gpu
from corral.wire.nodes import NodeInfo, NodeList


class HoldIn(Struct, forbid_unknown_fields=True):
    reason: str = ""
    until: str | float | None = None


class NodeChange(Struct, forbid_unknown_fields=True):
    labels: dict[str, str | None] = {}
    taints: dict[str, str | None] = {}


class WindowIn(Struct, forbid_unknown_fields=True):
    name: str
    duration: float
    cron: str | None = None
    timezone: str = "UTC"
    starts_at: str | float | None = None
    reason: str = ""
    drain: bool = True


class NodeOut(NodeInfo, frozen=True, kw_only=True):
    """A node, with its cards and breakers described as well."""

    gpus: list[Gpu]
    breakers: list[BreakerReport]


class BreakerResetIn(Struct, forbid_unknown_fields=True):
    key: str | None = None


class NodeListOut(NodeList, frozen=True, kw_only=True):
    nodes: list[NodeOut]  # type: ignore[assignment]
