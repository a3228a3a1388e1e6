"""Dotted paths that users, databases and running nodes have: they never move."""

from __future__ import annotations

import importlib

import pytest

# What users import, and what stands in rows of databases as `module:Class`.
PATHS = {
    "corral": ("Client", "ClusterManager", "Job", "Node", "Worker", "task"),
    "corral.client": ("AsyncClient", "Client", "TaskOptions", "result_of"),
    "corral.client.array": ("read_range", "read_sweep"),
    "corral.compat.celery": ("CeleryWorker",),
    "corral.engine": ("app",),
    "corral.errors": ("CorralError", "TaskFailed"),
    "corral.settings": ("Settings", "load"),
    "corral.worker": ("Context", "EchoWorker", "Failure", "SleepWorker", "Worker"),
    "corral.worker.builtin": ("EchoWorker", "SleepWorker"),
    "corral.worker.function": ("FunctionWorker", "StandardWorker"),
    "corral.worker.inference": ("InferenceWorker",),
    "corral.worker.inference.worker": ("InferenceWorker",),
    "corral.worker.script.worker": ("RunScriptWorker",),
    "corral.worker.server": ("ServerWorker",),
    "corral.worker.server.worker": ("ServerWorker",),
}
# Agents and supervisors that were not upgraded yet start these with `-m`.
STARTED = (
    "corral.worker.supervisor",
    "corral.worker.runner",
    "corral.worker.depot.peer",
    "corral.worker.container.guardian",
    "corral.agent.probe",
)


@pytest.mark.parametrize(
    ("module", "name"),
    [(module, name) for module, names in PATHS.items() for name in names],
)
def test_what_others_have_by_its_path_is_still_there(module: str, name: str) -> None:
    assert getattr(importlib.import_module(module), name) is not None


@pytest.mark.parametrize("module", STARTED)
def test_what_running_nodes_start_can_still_be_started(module: str) -> None:
    """A package by its `__main__`, a module by itself; both have a `main`."""
    found = importlib.import_module(module)
    if hasattr(found, "__path__"):
        found = importlib.import_module(f"{module}.__main__")
    assert callable(found.main)
