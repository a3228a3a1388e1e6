"""A machine that reaches nothing but the manager's port joins and does its share."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.cluster import SLEEP, Cluster, until

HERE, THERE = "10.213.47.1", "10.213.47.2"


@dataclass(frozen=True)
class Island:
    """A network namespace with one wire to this one."""

    name: str

    def run(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)

    def build(self) -> None:
        wire, far = f"{self.name}-a", f"{self.name}-b"
        self.run("ip", "netns", "add", self.name)
        self.run("ip", "link", "add", wire, "type", "veth", "peer", "name", far)
        self.run("ip", "link", "set", far, "netns", self.name)
        self.run("ip", "addr", "add", f"{HERE}/30", "dev", wire)
        self.run("ip", "link", "set", wire, "up")
        inside = ("ip", "netns", "exec", self.name, "ip")
        self.run(*inside, "addr", "add", f"{THERE}/30", "dev", far)
        self.run(*inside, "link", "set", far, "up")
        self.run(*inside, "link", "set", "lo", "up")

    def remove(self) -> None:
        subprocess.run(["ip", "netns", "del", self.name], check=False)

    def behind(self, hidden: Path) -> tuple[str, ...]:
        """Start a program there, with a folder of this machine hidden from it."""
        script = f'mount -t tmpfs none "{hidden}" && exec "$@"'
        inside = ("ip", "netns", "exec", self.name, "unshare", "--mount")
        return (*inside, "sh", "-c", script, "sh")


@pytest.fixture
def island() -> Iterator[Island]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    made = Island(f"cor{os.getpid() % 100000}")
    made.build()
    try:
        yield made
    finally:
        made.remove()


@pytest.mark.timeout(120)
@pytest.mark.spec("A3")
def test_a_node_that_reaches_only_the_managers_port_does_its_share(
    island: Island, tmp_path: Path
) -> None:
    options = ("--host", HERE, "--allow-plaintext")
    cluster = Cluster.start(tmp_path / "home", [f"{SLEEP}x4"], *options, host=HERE)
    try:
        sockets = cluster.home / "run"
        agent = cluster.join("island", [f"{SLEEP}x4"], *island.behind(sockets))
        cluster.serving("sleep", 2)
        client = cluster.client
        ids = client.submit_many([("sleep", {"seconds": 0.1})] * 120)
        done = client.wait_many(ids, timeout=60)
        by_worker = {w.worker_id: w.node_id for w in client.workers()}
        names = {n.node_id: n.hostname for n in client.nodes()}
        shares = [names.get(by_worker.get(t.worker_id or "") or "") for t in done]
        assert shares.count("island") > 30
        assert "through the manager" in (agent.home / "join.log").read_text()
        far = next(n for n in client.nodes() if n.hostname == "island")
        assert far.address == THERE
        until("it beats", lambda: client.node(far.node_id).status == "online")
    finally:
        cluster.stop()
