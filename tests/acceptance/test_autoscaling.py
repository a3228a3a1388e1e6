"""Autoscaling on a running cluster: from no worker to several, and back to none."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from corral.wire.workers import TypeScaling
from tests.acceptance.cluster import Cluster, until

SLEEP = "corral.worker.builtin:SleepWorker"
MOST = 3
"""Beside the one that is there anyway: MAX_WORKERS is for the whole cluster."""
LONG_S = 4.0
PATIENT_S = 90.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The first two under the names that existing documents have."""
    running = Cluster.start(
        tmp_path_factory.mktemp("scaling"),
        AUTO_SCALE_ENABLED="true",
        MAX_WORKERS=str(MOST + 1),
        CORRAL_AUTO_SCALE_WAIT_S="1",
        CORRAL_AUTO_SCALE_IDLE_S="2",
        CORRAL_AUTO_SCALE_COOLDOWN_S="0.2",
        CORRAL_AUTO_SCALE_NODE_WORKERS="8",
    )
    yield running
    running.stop()


def nap(cluster: Cluster) -> TypeScaling:
    (found,) = cluster.client.scaling().types
    return found


def changes(cluster: Cluster) -> list[int]:
    """Every worker that came (1) or went (-1), in order."""
    words = {"cluster_scaled_up": 1, "cluster_scaled_down": -1}
    found = cluster.client.events(limit=1000, event_type=",".join(words)).events
    return [words[e.event_type] for e in sorted(found, key=lambda e: e.seq)]


@pytest.mark.spec("C31", "C34", "C58")
def test_workers_come_with_the_work_and_go_when_it_is_done(cluster: Cluster) -> None:
    client = cluster.client
    client.register_worker_type("napper", SLEEP, job_type="nap")
    assert client.scale_worker_type("napper", max_workers=9).min_workers == 0
    assert nap(cluster).workers == 0

    first = client.submit("nap", {"seconds": 1})
    client.result(first, timeout=PATIENT_S)
    assert changes(cluster)[0] == 1

    # In one request, so that all of them wait: the last one would for far too long.
    # The first still runs when the others' workers have been idle long enough to go.
    naps = [("nap", {"seconds": LONG_S}), *[("nap", {"seconds": 0.4})] * 11]
    tasks = client.submit_many(naps)
    until("as many as may be", lambda: changes(cluster).count(1) >= MOST, PATIENT_S)
    for task in tasks:
        client.result(task, timeout=PATIENT_S)
    until("none is left", lambda: _is_empty(cluster), PATIENT_S)

    came = changes(cluster)
    assert sum(came) == 0
    assert max(sum(came[: n + 1]) for n in range(len(came))) <= MOST
    for task in (first.task_id, *tasks):
        assert client.get_task(task).status == "completed"
    # One without limits is nobody's business.
    cluster.serving("echo")

    shown = json.loads(cluster.corral("scaling", "--json").out)
    assert (shown["enabled"], shown["max_workers"]) == (True, MOST + 1)
    assert "were needed" in shown["types"][0]["last"]["reason"]


def _is_empty(cluster: Cluster) -> bool:
    now = nap(cluster)
    is_gone = not [w for w in cluster.client.workers() if "nap" in w.job_types]
    return is_gone and (now.workers, now.leaving) == (0, 0)
