"""What an agent tells a supervisor: whom to work for, and what to drop later.

Also what the administrator of its node allows the code that runs there.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from corral.wire.agent import AssignedSpec, TimeLimits
from corral.worker.container.job import ContainerSettings
from corral.worker.environments.policy import EnvironmentPolicy
from corral.worker.isolation import NetworkPolicy


class CodePolicy(msgspec.Struct):
    """Where code and models may come from, where they are kept, and what of work."""

    cache: str = ""
    limit_bytes: int = 20 << 30
    allow_file: bool = False
    isolation: str = "sandbox"
    builds_dependencies: bool = False
    allows_host_network: bool = False
    hidden: list[str] = msgspec.field(default_factory=list)
    """Files and folders of this machine that no code of users ever sees."""
    git_allow: list[str] = msgspec.field(default_factory=lambda: ["public"])
    git_tokens: dict[str, str] = msgspec.field(default_factory=dict)
    git_ssh_key: str = ""
    git_limit_bytes: int = 10 << 30
    artifact_limit_bytes: int = 10 << 30
    checkpoint_s: float = 30.0
    log_limit_bytes: int = 8 << 20
    model_room: int = 5
    model_dir: str = ""
    model_disk_bytes: int = 50 << 30
    model_hub_cache: str | None = None
    model_shared: str | None = None

    def environments(self, manager_url: str, isolation: str) -> EnvironmentPolicy:
        return EnvironmentPolicy(
            isolation=isolation,
            hidden=tuple(map(Path, self.hidden)),
            builds_dependencies=self.builds_dependencies,
            reach=NetworkPolicy(manager_url, self.allows_host_network),
            allow_file=self.allow_file,
            git_allow=tuple(self.git_allow),
            ssh_key=self.git_ssh_key,
            git_limit_bytes=self.git_limit_bytes,
            git_tokens=self.git_tokens,
        )


class Assignment(msgspec.Struct):
    """The agent's first line: whom to work for, and as what."""

    worker_id: str
    node_id: str
    manager_url: str
    key: str
    epoch: int
    redis_url: str
    spec: AssignedSpec
    ca_file: str | None = None
    log_level: str = "INFO"
    log_format: str = "text"
    log_file: str | None = None
    """Where all workers of this machine say what they do, beside each one's own."""
    allow_plaintext: bool = False
    """Whether the worker's port may be open to the network."""
    send_events: bool = False
    """Whether Celery's monitors, as Flower, are told of orders and of the worker."""
    code: CodePolicy = msgspec.field(default_factory=CodePolicy)
    containers: ContainerSettings = ContainerSettings()
    limits: TimeLimits = TimeLimits()


class AgentMessage(msgspec.Struct):
    """Any later line of the agent."""

    drop: list[tuple[str, int]] = msgspec.field(default_factory=list)
    cut_off_s: float = 0.0
