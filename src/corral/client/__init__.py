"""The HTTP client of Corral, for programs and for the command line.

It knows the wire (docs/design/wire.md) and nothing of what is behind it. Names load on
first use: a worker that only reads a function's declaration needs no HTTP.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral.client.calls.tasks import TaskQuery, result_of
    from corral.client.client import AsyncClient, Client
    from corral.client.http.retry import Patience
    from corral.wire.access import JoinToken
    from corral.wire.insight import ClusterStatus
    from corral.wire.nodes import NodeInfo
    from corral.wire.output import LogLine
    from corral.wire.queues import JobTypeInfo
    from corral.wire.tasks import (
        Batch,
        Bulk,
        Collected,
        Refusal,
        Submitted,
        TaskDetail,
        TaskInfo,
        TaskOptions,
    )
    from corral.wire.workers import WorkerInfo

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


_TASKS = "corral.wire.tasks"
_HOME_OF = {
    "NodeInfo": "corral.wire.nodes",
    "AsyncClient": "corral.client.client",
    "Client": "corral.client.client",
    "Patience": "corral.client.http.retry",
    "TaskOptions": _TASKS,
    "TaskQuery": "corral.client.calls.tasks",
    "WorkerInfo": "corral.wire.workers",
    "ClusterStatus": "corral.wire.insight",
    "JobTypeInfo": "corral.wire.queues",
    "JoinToken": "corral.wire.access",
    "LogLine": "corral.wire.output",
    "result_of": "corral.client.calls.tasks",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'corral.client' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF.get(name, _TASKS)), name)
    globals()[name] = value
    return value
