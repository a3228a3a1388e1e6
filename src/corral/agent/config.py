"""What an agent is told at its start. It reads no environment: its caller does that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corral.agent.gpu_policy import GpuPolicy
from corral.agent.restart_policy import ChildPolicy
from corral.core.nodes.breaker import BreakerPolicy
from corral.core.nodes.owner import OwnerPolicy
from corral.core.nodes.worker import WorkerSpec
from corral.process.keep_alive import python_command

SUPERVISOR_ARGV = python_command("corral.worker.supervisor.main")


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """`home` is CORRAL_HOME; the agent keeps to its own folder below it.

    `url` is what the job API knows this node by; when it is http:// with a port, the
    agent answers there. The three paces override what the manager says at
    registration. `direct_url` is a Redis to try before the one the manager names.
    `code` is what workers are told of where code may come from; it holds tokens.
    `machine` tells this machine from others; on its own the manager makes the node
    its master.
    """

    manager_url: str
    home: Path
    name: str
    join_token: str | None = field(default=None, repr=False)
    workers: tuple[WorkerSpec, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    url: str | None = None
    direct_url: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    beat_s: float | None = None
    sample_s: float | None = None
    fence_after_s: float | None = None
    join_wait_s: float = 60.0
    tick_s: float = 1.0
    child: ChildPolicy = field(default_factory=ChildPolicy)
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    supervisor_argv: tuple[str, ...] = SUPERVISOR_ARGV
    die_with_parent: bool = False
    code: Mapping[str, Any] = field(default_factory=dict, repr=False)
    containers: Mapping[str, Any] = field(default_factory=dict)
    gpus: GpuPolicy = field(default_factory=GpuPolicy)
    owner: OwnerPolicy = field(default_factory=OwnerPolicy)
    peer_port: int | None = None
    """Where model files are given to other nodes, 0 is any port; None is nowhere."""
    machine: str | None = None
    node_type: str = "worker"
    log_format: str = "text"
    allow_plaintext: bool = False
    """Whether ports of the node and its workers may be open to the network."""
    worker_env: tuple[str, ...] = ()
    """Names of variables that workers inherit beside the usual ones, or `NAME_*`."""
    send_events: bool = False
    """Whether workers tell Celery's monitors, as Flower, of orders and themselves."""

    @property
    def worker_log(self) -> Path:
        """Where all workers of this machine say what they do."""
        return self.home / "logs" / "worker.log"

    @property
    def folder(self) -> Path:
        """The agent's own folder: credential, journal, lock, logs, socket."""
        # Names are data: whatever is in one, the folder stays below `home`.
        safe = re.sub(r"[^A-Za-z0-9._-]", "_", self.name).lstrip(".") or "agent"
        return self.home / "agents" / safe
