"""Most machines stand still at once: nothing is rescheduled, one alarm, and back.

`make show-mass-loss` does the same with the default settings, for a minute.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.acceptance.cluster import SLEEP, Agent, Cluster, until

QUICK: dict[str, Any] = {
    "CORRAL_BEAT_S": "0.5",
    "CORRAL_SUSPECT_AFTER_S": "3.5",
    "CORRAL_LOST_AFTER_S": "5.5",
    "CORRAL_NO_OVERLAP_KILL_S": "5",
    "CORRAL_NO_OVERLAP_REQUEUE_S": "10",
    "CORRAL_RETRY_BASE_S": "0.1",
}
SILENCE_S = float(os.environ.get("MASS_LOSS_S", "7.5"))
SETTINGS: dict[str, Any] = {} if "MASS_LOSS_S" in os.environ else QUICK
ALL = 5


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster.start(tmp_path / "home", [SLEEP], **SETTINGS)
    yield made
    made.stop()


def signal_all(agent: Agent, number: signal.Signals) -> None:
    """To the agent and everything under it, as when a machine stands still."""
    agent_process = psutil.Process(agent.process.pid)
    for process in (agent_process, *agent_process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def statuses(cluster: Cluster) -> list[str]:
    return sorted(node.status for node in cluster.client.nodes())


def happened(cluster: Cluster, kind: str) -> int:
    events = cluster.client.events(limit=1000).events
    return sum(event.event_type == kind for event in events)


def stays_calm(cluster: Cluster, seconds: float) -> None:
    """Nobody is taken for lost in all that time."""
    over_at = time.monotonic() + seconds

    def is_over() -> bool:
        assert "offline" not in statuses(cluster)
        return time.monotonic() > over_at

    until("the silence is over", is_over, seconds + 60)


@pytest.mark.timeout(240)
def test_when_three_of_five_nodes_stand_still_nothing_is_rescheduled(
    cluster: Cluster,
) -> None:
    quiet = [cluster.join(f"still-{n}", [SLEEP]) for n in range(3)]
    cluster.join("other", [])
    cluster.serving("sleep", 4)
    until("all five are online", lambda: statuses(cluster) == ["online"] * ALL)
    client = cluster.client
    # Longer than the silence on whoever stands still; elsewhere there is room at once.
    work = [("sleep", {"seconds": SILENCE_S + 2.0})] * 4
    ids = client.submit_many(work)
    until(
        "all run", lambda: {t.status for t in map(client.get_task, ids)} == {"running"}
    )
    for agent in quiet:
        signal_all(agent, signal.SIGSTOP)
    try:
        stays_calm(cluster, SILENCE_S)
        assert happened(cluster, "mass_loss") == 1
    finally:
        for agent in quiet:
            signal_all(agent, signal.SIGCONT)
    until("all are back", lambda: statuses(cluster) == ["online"] * ALL)
    done = client.wait_many(ids, timeout=60)
    assert [(t.status, t.attempt) for t in done] == [("completed", 1)] * 4
    assert happened(cluster, "mass_loss") == 1
    assert happened(cluster, "node_lost") == 0
