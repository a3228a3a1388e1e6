"""The whole public API of Corral. Names load on first use: importing stays cheap."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral import errors
    from corral.client import AsyncClient, Client
    from corral.client.functions.function import task
    from corral.client.job_api.job import Job, JobSchema, job_from_schema
    from corral.client.job_api.service import ClusterManager, Node
    from corral.worker import EchoWorker, SleepWorker, Worker
    from corral.worker.inference import InferenceWorker
    from corral.worker.runner.current_task import progress
    from corral.worker.script.worker import RunScriptWorker

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "Client",
    "ClusterManager",
    "EchoWorker",
    "InferenceWorker",
    "Job",
    "JobSchema",
    "Node",
    "RunScriptWorker",
    "SleepWorker",
    "Worker",
    "__version__",
    "errors",
    "job_from_schema",
    "progress",
    "task",
]

_HOME_OF = {
    "AsyncClient": "corral.client",
    "Client": "corral.client",
    "ClusterManager": "corral.client.job_api.service",
    "Job": "corral.client.job_api.job",
    "JobSchema": "corral.client.job_api.job",
    "Node": "corral.client.job_api.service",
    "job_from_schema": "corral.client.job_api.job",
    "progress": "corral.worker.runner.current_task",
    "task": "corral.client.functions.function",
    "EchoWorker": "corral.worker",
    "InferenceWorker": "corral.worker.inference",
    "RunScriptWorker": "corral.worker.script.worker",
    "SleepWorker": "corral.worker",
    "Worker": "corral.worker",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("corral.errors")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'corral' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
