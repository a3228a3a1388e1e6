"""Every worker of a real cluster is tried; one whose owner uses the GPU is spared."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.cluster import ECHO, Cluster, until

SINGING = "tests.acceptance.singing:SingingWorker=sing"
HOARSE = "tests.acceptance.singing:HoarseWorker"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster.start(
        tmp_path_factory.mktemp("validate") / "home",
        [ECHO, SINGING],
        CORRAL_SIMULATED_GPUS="1x24GB",
        CORRAL_OWNER_POLICY="pause",
        CORRAL_OWNER_RESUME_S="0",
        # Whoever runs this test sits at the machine.
        CORRAL_OWNER_IDLE_S="1",
        CORRAL_BEAT_S="1",
    )
    made.serving("echo")
    made.serving("sing")
    yield made
    made.stop()


def verdicts(cluster: Cluster, *more: str) -> tuple[int, dict[str, Any]]:
    ran = cluster.corral("validate", "--json", *more)
    rows = json.loads(ran.out)["workers"]
    return ran.code, {row["worker_class"].rpartition(":")[2]: row for row in rows}


@pytest.mark.timeout(240)
@pytest.mark.spec("A16", "B20")
def test_a_canary_goes_through_every_worker_and_finds_the_broken_one(
    shared: Cluster,
) -> None:
    client = shared.client
    code, found = verdicts(shared)
    assert (code, {row["status"] for row in found.values()}) == (0, {"ok"})
    told = found["SingingWorker"]["answer"]
    assert told["canary"] == "tweet"
    assert told["worker_class"] == "tests.acceptance.singing:SingingWorker"
    pids = {w.worker_id: w.pid for w in client.workers()}
    supervisor = pids[found["SingingWorker"]["worker_id"]]
    assert supervisor is not None
    assert told["pid"] in shared.runner_pids(supervisor)
    hoarse = client.launch_worker(HOARSE, job_types=["hoarse"])[0]
    shared.serving("hoarse")
    try:
        code, found = verdicts(shared)
        assert code == 1
        assert found["HoarseWorker"]["status"] == "failed"
        assert "it lost its voice" in found["HoarseWorker"]["detail"]
        assert found["EchoWorker"]["status"] == "ok"
    finally:
        client.stop_worker(hoarse.worker_id)
    assert not list(client.list_tasks(dead=True)), "canaries are no dead letters"
    done = [w.performance_metrics["tasks_completed"] for w in client.workers()]
    assert set(done) == {0}


@pytest.mark.timeout(240)
def test_while_the_owner_uses_the_gpu_the_node_gets_nothing_new(
    shared: Cluster,
) -> None:
    client = shared.client

    def node() -> Any:
        return client.nodes()[0]

    until("its card is known", lambda: node().gpus)
    assert node().node_type == "master"
    card = node().gpus[0]["id"]
    until("nobody has typed for a second", lambda: not node().holds)
    (ledger,) = shared.home.glob("agents/*")
    folder = ledger / "simulated" / card
    folder.mkdir(parents=True, exist_ok=True)
    game = subprocess.Popen(["sleep", "60"])
    try:
        (folder / f"{game.pid}-game").write_text("20000", encoding="ascii")
        until("the owner is seen", lambda: node().holds)
        (hold,) = node().holds
        assert hold.source == "owner"
        assert "sleep holds 20000 MB" in hold.reason
        task = client.submit("echo", {"message": "later"})
        waiting = client.get_task(task.task_id).waiting
        assert waiting is not None
        assert waiting.reason == "node_held"
        code, found = verdicts(shared, "--timeout", "5")
        assert (code, found["EchoWorker"]["status"]) == (1, "held")
    finally:
        game.kill()
        game.wait()
    assert client.result(task.task_id, timeout=60) == {"echoed": "later"}
    kinds = [event.event_type for event in client.events(limit=1000).events]
    assert kinds.index("owner_active") < kinds.index("owner_gone")
