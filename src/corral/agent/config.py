"""What an agent is told at its start. It reads no environment: its caller does that."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corral.core.nodes.breaker import BreakerPolicy
from corral.core.nodes.owner import OwnerPolicy
from corral.core.nodes.worker import WorkerSpec


@dataclass(frozen=True, slots=True)
class GpuPolicy:
    """What a node is told of its GPUs.

    Attributes:
        devices: Cards to offer by number, id or address; None for all fit ones.
        simulated: Cards to simulate, `2x24GB,1x8GB`.
        look_s: Time between readings of a vendor that answers quickly.
        timeout_s: How long a vendor's library may take to answer.
        memory_share: What part of a card's memory may be given out.
        quarantine: How many errors within which time put a card in quarantine, and
            for how long.
    """

    devices: tuple[str, ...] | None = None
    simulated: str = ""
    look_s: float = 5.0
    timeout_s: float = 10.0
    memory_share: float = 0.9
    quarantine: BreakerPolicy = field(
        default_factory=lambda: BreakerPolicy(3, 600.0, 300.0, 86_400.0)
    )


SUPERVISOR_ARGV = (sys.executable, "-m", "corral.worker.supervisor.main")


@dataclass(frozen=True, slots=True)
class ChildPolicy:
    """How workers are kept alive; the defaults are the documented ones."""

    first_delay_s: float = 0.5
    longest_delay_s: float = 30.0
    healthy_after_s: float = 60.0
    deaths_to_error: int = 5
    silent_after_s: float = 30.0
    steady_s: float = 5.0
    stop_grace_s: float = 30.0
    log_limit_bytes: int = 10 * 1024 * 1024


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
    child: ChildPolicy = ChildPolicy()
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
