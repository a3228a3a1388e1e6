"""The HTTP client of Corral, for programs and for the command line.

It knows the wire (docs/design/wire.md) and nothing of what is behind it.
"""

from __future__ import annotations

from corral.client.face import AsyncClient, Client
from corral.client.persistence import Patience
from corral.client.task import TaskOptions, result_of
from corral.client.value import (
    Batch,
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
    "WorkerInfo",
    "result_of",
]
