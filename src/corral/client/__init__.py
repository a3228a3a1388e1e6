"""The HTTP client of Corral, for programs and for the command line.

It knows the wire (docs/design/wire.md) and nothing of what is behind it. Names load on
first use: a worker that only reads a function's declaration needs no HTTP.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral.client.bulk import TaskQuery
    from corral.client.face import AsyncClient, Client
    from corral.client.persistence import Patience
    from corral.client.task import TaskOptions, result_of
    from corral.client.value import (
        Batch,
        Bulk,
        ClusterStatus,
        Collected,
        JobTypeInfo,
        JoinToken,
        LogLine,
        NodeInfo,
        Refusal,
        Submitted,
        TaskDetail,
        TaskInfo,
        WorkerInfo,
    )

__all__ = [
    "AsyncClient",
    "Batch",
    "Bulk",
    "Client",
    "ClusterStatus",
    "Collected",
    "JobTypeInfo",
    "JoinToken",
    "LogLine",
    "NodeInfo",
    "Patience",
    "Refusal",
    "Submitted",
    "TaskDetail",
    "TaskInfo",
    "TaskOptions",
    "TaskQuery",
    "WorkerInfo",
    "result_of",
]


_VALUES = "corral.client.value"
_HOME_OF = {
    "AsyncClient": "corral.client.face",
    "Client": "corral.client.face",
    "Patience": "corral.client.persistence",
    "TaskOptions": "corral.client.task",
    "TaskQuery": "corral.client.bulk",
    "result_of": "corral.client.task",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'corral.client' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF.get(name, _VALUES)), name)
    globals()[name] = value
    return value
