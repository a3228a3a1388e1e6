"""What the administrator of a node allows the code that runs there.

The agent tells it to every supervisor; nothing of it is read from the environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from corral.errors import WorkerError

if TYPE_CHECKING:
    from corral.worker.container.engine import Engine


class Code(msgspec.Struct):
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


class Limits(msgspec.Struct):
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

    def engine(self) -> Engine:
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
