"""Simulated nodes at a real manager: what `make bench-nodes` measures, in small."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from bench.corral_side import CorralSide
from bench.nodes_watch import Fleet, Watch, fleet_of
from tests.acceptance.cluster import Cluster

NODES, WORKERS, CARDS = 10, 4, 2
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("fleet")
    started = Cluster.start(home, [], CORRAL_BEAT_S="0.5")
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def fleet(cluster: Cluster) -> Iterator[Fleet]:
    with fleet_of(cluster.url, WORKERS, CARDS) as started:
        yield started


@pytest.fixture(scope="module")
def watch(cluster: Cluster, fleet: Fleet) -> Iterator[Watch]:
    side = CorralSide(cluster.home, cluster.url, cluster.client)
    with Watch(side, fleet, WORKERS) as started:
        started.grow(NODES)
        yield started


def test_nodes_that_start_together_are_all_kept(watch: Watch, fleet: Fleet) -> None:
    early = fleet.tell("figures")
    watch.wait_for_beats(time.monotonic())
    told = fleet.tell("figures")
    assert told["nodes"] == NODES
    assert told["held"] == NODES * WORKERS / 2
    assert watch.losses(early, told) == 0


def test_no_node_is_lost_by_a_manager_that_is_killed(
    watch: Watch, fleet: Fleet
) -> None:
    watch.kill_manager()
    told = fleet.tell("figures")
    assert told["held"] == NODES * WORKERS / 2
    assert watch.losses(told) == 0
