"""A network namespace with one wire to this one: a machine that reaches little."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Island:
    """`here` is our end of the wire, `there` the other one."""

    name: str
    here: str
    there: str

    def run(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)

    def build(self) -> None:
        wire, far = f"{self.name}-a", f"{self.name}-b"
        self.run("ip", "netns", "add", self.name)
        self.run("ip", "link", "add", wire, "type", "veth", "peer", "name", far)
        self.run("ip", "link", "set", far, "netns", self.name)
        self.run("ip", "addr", "add", f"{self.here}/30", "dev", wire)
        self.run("ip", "link", "set", wire, "up")
        inside = (*self.inside, "ip")
        self.run(*inside, "addr", "add", f"{self.there}/30", "dev", far)
        self.run(*inside, "link", "set", far, "up")
        self.run(*inside, "link", "set", "lo", "up")

    def remove(self) -> None:
        subprocess.run(["ip", "netns", "del", self.name], check=False)

    @property
    def inside(self) -> tuple[str, ...]:
        """What to put before a command that is to run there."""
        return ("ip", "netns", "exec", self.name)

    def behind(self, hidden: Path) -> tuple[str, ...]:
        """Start a program there, with a folder of this machine hidden from it."""
        script = f'mount -t tmpfs none "{hidden}" && exec "$@"'
        return (*self.inside, "unshare", "--mount", "sh", "-c", script, "sh")


@contextmanager
def built() -> Iterator[Island]:
    """One of its own for every process that runs tests."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    number = os.getpid() % 65_536
    net = f"10.{200 + number // 256 % 40}.{number % 256}"
    made = Island(f"cor{os.getpid() % 100_000}", f"{net}.1", f"{net}.2")
    made.build()
    try:
        yield made
    finally:
        made.remove()
