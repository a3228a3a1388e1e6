"""What a node's administrator allows when code is fetched and built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from corral.worker.isolation import NetworkPolicy

PUBLIC = "public"


@dataclass(frozen=True, slots=True)
class EnvironmentPolicy:
    """`git_tokens` maps a host, with its port unless that is 443, to a token.

    A token may be written `user:token` where the host wants a name with it. `file`
    in URLs lets whoever submits read every repository this node's user can read.
    `git_allow` are hosts, addresses or networks, each with a port or for every port;
    PUBLIC stands for every address that is not inside somebody's network. Without
    `ssh_key`, a file, there is no ssh. `git_limit_bytes` is the most that a clone has,
    and the most that the files of a commit have.
    """

    allow_file: bool = False
    git_allow: tuple[str, ...] = (PUBLIC,)
    ssh_key: str = ""
    git_limit_bytes: int = 10 << 30
    git_tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    isolation: str = "sandbox"
    """How builds are kept; `process` where an administrator said so."""
    hidden: tuple[Path, ...] = ()
    builds_dependencies: bool = False
    """May what has no wheel be built from source, in the sandbox?"""
    reach: NetworkPolicy = field(default_factory=NetworkPolicy)
    git_timeout_s: float = 600.0
    build_timeout_s: float = 1800.0

    @property
    def patience_s(self) -> float:
        """How long to wait for somebody else who makes the same thing."""
        return 3 * self.git_timeout_s + 2 * self.build_timeout_s
