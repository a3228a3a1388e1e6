"""What an agent tells a supervisor: whom to work for, and what to drop later.

Also what the administrator of its node allows the code that runs there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from corral.errors import WorkerError

if TYPE_CHECKING:
    from corral.worker.container.engine import ContainerEngine


class CodePolicy(msgspec.Struct):
    """Where code and models may come from, where they are kept, and what of work."""

    cache: str = ""
    limit_bytes: int = 20 << 30
    allow_file: bool = False
    git_tokens: dict[str, str] = msgspec.field(default_factory=dict)
    artifact_limit_bytes: int = 10 << 30
    checkpoint_s: float = 30.0
    log_limit_bytes: int = 8 << 20
    model_room: int = 5
    model_dir: str = ""
    model_disk_bytes: int = 50 << 30
    model_hub_cache: str | None = None
    model_shared: str | None = None


class TimeLimits(msgspec.Struct):
    """The manager's word on time, told at the node's registration.

    Cut off for `no_overlap_kill_s`, a worker stops what must not run twice at a time.
    An order that takes longer than `overrun_s` hands back its unstarted tasks. A model
    may take `model_load_s` to load, which is no part of its task's own time.
    """

    no_overlap_kill_s: float = 15.0
    overrun_s: float = 0.05
    model_load_s: float = 300.0


class Containers(msgspec.Struct):
    """Which engine to use, and what containers may have."""

    host: str = ""
    allowed_volumes: list[str] = msgspec.field(default_factory=list)
    allowed_devices: list[str] = msgspec.field(default_factory=list)
    may_use_network: bool = False
    may_pull: bool = True

    def engine(self) -> ContainerEngine:
        """Docker or Podman of this machine.

        Raises:
            WorkerError: there is none, or it does not answer.
        """
        # Late: only who runs containers pays for the SDK.
        from corral.worker.container.engine import find
        from corral.worker.container.job import ContainerSettings

        found = find(
            ContainerSettings(
                self.host,
                tuple(self.allowed_volumes),
                tuple(self.allowed_devices),
                self.may_use_network,
                self.may_pull,
            )
        )
        if found is None:
            raise WorkerError(
                "this node has neither Docker nor Podman: install one, or use code "
                "from Git or a folder"
            )
        return found


class AssignedSpec(msgspec.Struct):
    worker_class: str
    name: str = ""
    job_types: list[str] = msgspec.field(default_factory=list)
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    concurrency: int = 1
    environment: dict[str, Any] | None = None
    entry: str | None = None
    url: str | None = None


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
    send_events: bool = False
    """Whether Celery's monitors, as Flower, are told of orders and of the worker."""
    code: CodePolicy = msgspec.field(default_factory=CodePolicy)
    containers: Containers = msgspec.field(default_factory=Containers)
    limits: TimeLimits = msgspec.field(default_factory=TimeLimits)


class AgentMessage(msgspec.Struct):
    """Any later line of the agent."""

    drop: list[tuple[str, int]] = msgspec.field(default_factory=list)
    cut_off_s: float = 0.0
