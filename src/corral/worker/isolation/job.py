"""What is to be run, where, and within which limits; values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from corral.worker.isolation.network import Network, NetworkPolicy


class Level(StrEnum):
    """How far a job is kept from the rest of the machine."""

    SANDBOX = "sandbox"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What the whole family may use; None is no limit.

    `file_size_mb` and `open_files` hold for each process, as the kernel has it.
    """

    memory_mb: int | None = None
    cpus: float | None = None
    processes: int | None = None
    file_size_mb: int | None = None
    open_files: int | None = None


@dataclass(frozen=True, slots=True)
class SandboxJob:
    """One command with everything it may see and use.

    Attributes:
        argv: The program and its arguments; no shell reads them.
        folder: Where it starts; writable.
        scratch: HOME and TMPDIR live in it; writable, the caller removes it.
        mark: Unique to the task and attempt; found in each process's environment.
        environment: Added to the clean environment, see `clean_environment`.
        readable: Shown read-only in a sandbox beside the system: environments, caches.
        writable: Shown writable: artifacts, checkpoints.
        hidden: Never shown, also where a shown folder contains it.
        gpus: Which GPUs it sees; none for an empty tuple, all for None.
        shown: Variables that show it the GPUs it was given; they win over all else.
        network: What a sandbox has of it; a loopback of its own in any case.
        reach: What a network of its own reaches of the machines around it.
        is_ours: A program of ours, which runs no code of others: it keeps our user.
    """

    argv: tuple[str, ...]
    folder: Path
    scratch: Path
    mark: str
    environment: Mapping[str, str] = field(default_factory=dict)
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    limits: SandboxLimits = SandboxLimits()
    gpus: tuple[str, ...] | None = ()
    shown: Mapping[str, str] = field(default_factory=dict)
    network: Network = Network.NONE
    reach: NetworkPolicy = field(default_factory=NetworkPolicy)
    is_ours: bool = False

    @property
    def uses_gpu(self) -> bool:
        return self.gpus is None or len(self.gpus) > 0 or bool(self.shown)

    @property
    def home(self) -> Path:
        return self.scratch / "home"

    @property
    def temporary(self) -> Path:
        return self.scratch / "tmp"

    @property
    def resolver(self) -> Path:
        """Its name servers, where it has a network of its own."""
        return self.scratch / "resolv.conf"

    @property
    def own_folders(self) -> tuple[Path, ...]:
        """What it may write to."""
        return (self.folder, self.scratch, *self.writable)
