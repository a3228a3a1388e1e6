"""What the supervisor trusts the runner of scripts with. Scripts never see it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from corral.worker.assignment import CodePolicy
from corral.worker.container.job import ContainerSettings
from corral.worker.manager_link import ManagerLink

SCRIPT_WORKER = "corral.worker.script.worker:RunScriptWorker"
_NAMES = frozenset({SCRIPT_WORKER, "corral:RunScriptWorker"})


def runs_scripts(worker_class: str) -> bool:
    """Is it the class that is trusted with access? Known by name: never imported."""
    head, _, name = worker_class.replace(":", ".").rpartition(".")
    return f"{head}:{name}" in _NAMES


class ScriptAccess(msgspec.Struct):
    """Travels over the runner's pipe alone: neither argv nor environment has it."""

    worker_id: str
    node_id: str
    manager_url: str
    key: str
    ca_file: str | None = None
    code: CodePolicy = msgspec.field(default_factory=CodePolicy)
    containers: ContainerSettings = ContainerSettings()

    @property
    def container_trace(self) -> Path:
        """There once this worker has used containers: they may have outlived it."""
        return Path(self.code.cache) / "containers" / self.worker_id

    def link(self) -> ManagerLink:
        return ManagerLink(self.manager_url, self.key, self.ca_file)


def read_access(told: Any) -> ScriptAccess:
    return msgspec.convert(told, ScriptAccess)
