"""A machine finds the manager on its network, and joins with its token."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from zeroconf import IPVersion, ServiceInfo, Zeroconf

from corral.cli.serve.discovery import SERVICE
from tests.acceptance.cluster import (
    CORRAL,
    Agent,
    Cluster,
    Run,
    clean_environment,
    until,
)
from tests.acceptance.island import Island, built

NAME = "pasture"


@pytest.fixture
def island() -> Iterator[Island]:
    with built() as made:
        yield made


@pytest.fixture
def cluster(island: Island, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster.start(
        tmp_path / "home",
        [],
        *("--host", island.here, "--allow-plaintext"),
        host=island.here,
        CORRAL_DISCOVERY="true",
        CORRAL_CLUSTER_NAME=NAME,
    )
    yield made
    made.stop()


def join(island: Island, home: Path, token: str, *more: str) -> subprocess.Popen[str]:
    command = [*island.inside, *CORRAL, "join", "--discover", "--no-worker", *more]
    env = clean_environment(CORRAL_HOME=str(home), CORRAL_JOIN_TOKEN=token)
    return subprocess.Popen(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def end_of(process: subprocess.Popen[str]) -> Run:
    _, said = process.communicate(timeout=60)
    return Run(process.returncode, "", said)


@contextmanager
def another(island: Island) -> Iterator[None]:
    """A second manager announces itself on the same wire."""
    mouth = Zeroconf(interfaces=[island.here], ip_version=IPVersion.V4Only)
    info = ServiceInfo(
        SERVICE,
        f"meadow elsewhere 1.{SERVICE}",
        port=1,
        properties={"cluster": "meadow", "version": "0.1.0", "tls": "1"},
        server="meadow-test.local.",
        parsed_addresses=[island.here],
    )
    mouth.register_service(info)
    try:
        yield
    finally:
        mouth.close()


@pytest.mark.timeout(240)
@pytest.mark.spec("A13")
def test_a_machine_finds_the_manager_of_its_cluster_and_joins_with_a_token(
    island: Island, cluster: Cluster, tmp_path: Path
) -> None:
    (own,) = cluster.client.nodes()
    assert (own.node_type, own.status, own.workers) == ("master", "online", 0)
    token = cluster.client.join_token(uses=1).token
    with another(island):
        some = join(island, tmp_path / "some", token)
        nobody = join(island, tmp_path / "nobody", token, "--cluster", "nobody")
        several, none = end_of(some), end_of(nobody)
        assert several.code == 2
        for line in (
            f"{NAME} at {cluster.url} ",
            f"meadow at https://{island.here}:1 ",
        ):
            assert line in several.err
        assert "--cluster" in several.err
        assert none.code == 3
        assert "no manager of a cluster 'nobody' announces itself" in none.err
        found = join(island, tmp_path / "node", token, "--cluster", NAME)
        agent = Agent("node", tmp_path / "node", found)  # type: ignore[arg-type]
        try:
            until("it is online", lambda: _far(cluster, island))
        finally:
            agent.stop()
    assert f"found {NAME} at {cluster.url}" in end_of(found).err


def _far(cluster: Cluster, island: Island) -> bool:
    nodes = cluster.client.nodes()
    return any(n.address == island.there and n.status == "online" for n in nodes)
