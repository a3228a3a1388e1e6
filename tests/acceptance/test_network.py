"""A machine that reaches nothing but the manager's port joins and does its share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.cluster import SLEEP, Cluster, until
from tests.acceptance.island import Island, built


@pytest.fixture
def island() -> Iterator[Island]:
    with built() as made:
        yield made


@pytest.mark.timeout(240)
@pytest.mark.spec("A3", "B8")
def test_a_node_that_reaches_only_the_managers_port_does_its_share(
    island: Island, tmp_path: Path
) -> None:
    options = ("--host", island.here, "--allow-plaintext")
    cluster = Cluster.start(
        tmp_path / "home", [f"{SLEEP}x4"], *options, host=island.here
    )
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
        assert far.address == island.there
        until("it beats", lambda: client.node(far.node_id).status == "online")
    finally:
        cluster.stop()
