"""`corral validate`: a verdict for every worker, and an exit code for scripts."""

from __future__ import annotations

import json
from typing import Any

from corral.core.tasks.job_type import CANARY
from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import Answer, Seen, StandIn

Json = dict[str, Any]
HELD = {"source": "operator", "reason": "new disk"}
NODES: list[Json] = [
    {"node_id": "n1", "hostname": "one", "status": "online"},
    {"node_id": "n2", "hostname": "two", "status": "online", "holds": [HELD]},
    {"node_id": "n3", "hostname": "three", "status": "offline"},
]
RIGHT = "what was sent"


def worker(worker_id: str, node_id: str = "n1", **more: Any) -> Json:
    return {
        "worker_id": worker_id,
        "name": worker_id,
        "node_id": node_id,
        "status": "online",
        "state": "ready",
        "worker_class": "a:B",
        **more,
    }


def came_back(worker_id: str, nonce: str = RIGHT) -> Json:
    return {"status": "completed", "worker_id": worker_id, "result": {"nonce": nonce}}


def cluster(manager: StandIn, workers: list[Json], ends: dict[str, Json]) -> None:
    """Canaries end as `ends` says, by worker; the others never."""
    sent: dict[str, Json] = {}

    def take(seen: Seen) -> Answer:
        for task in seen.json["tasks"]:
            sent[f"t-{task['only_on']}"] = task
        ids = list(sent)
        return Answer({"task_ids": ids, "errors": [], "accepted": len(ids)})

    def tell(seen: Seen) -> Answer:
        tasks, left = [], []
        for id_ in seen.json["task_ids"]:
            end = ends.get(id_.removeprefix("t-"))
            if end is None:
                left.append(id_)
                continue
            if end.get("result") == {"nonce": RIGHT}:
                end = {**end, "result": sent[id_]["parameters"]}
            tasks.append({"task_id": id_, "task_type": CANARY, **end})
        return Answer({"tasks": tasks, "pending": left, "unknown": []})

    manager.on("GET /nodes", {"nodes": NODES})
    manager.on("GET /workers", {"workers": workers})
    manager.on("POST /tasks/batch", take)
    manager.on("POST /tasks/collect", tell)


def test_all_well_is_zero_and_each_worker_got_its_own_canary(
    manager: StandIn, corral: Corral
) -> None:
    workers = [worker("w1"), worker("w2", state="busy")]
    cluster(manager, workers, {"w1": came_back("w1"), "w2": came_back("w2")})
    ran = corral("validate")
    assert ran.code == 0, ran
    assert "2 of 2 workers answered" in ran.err
    (sent,) = manager.asked("POST /tasks/batch")
    tasks = sent.json["tasks"]
    assert [task["only_on"] for task in tasks] == ["w1", "w2"]
    assert {task["task_type"] for task in tasks} == {CANARY}


def test_each_worker_that_did_not_answer_is_named_with_the_reason(
    manager: StandIn, corral: Corral
) -> None:
    broken = {"kind": "exception", "message": "RuntimeError: no voice"}
    workers = [
        worker("good"),
        worker("raises"),
        worker("wrong"),
        worker("other"),
        worker("slow"),
        worker("broken", state="error", status="error", error="no module a"),
        worker("held", "n2"),
        worker("away", "n3"),
    ]
    ends = {
        "good": came_back("good"),
        "raises": {"status": "failed", "worker_id": "raises", "error": broken},
        "wrong": came_back("wrong", "made up"),
        "other": came_back("good"),
    }
    cluster(manager, workers, ends)
    waiting = {"reason": "workers_busy", "message": "worker slow is busy"}
    task = {"task_id": "t-slow", "task_type": CANARY, "status": "queued"}
    manager.on("GET /tasks/t-slow", {**task, "waiting": waiting})
    manager.on("POST /tasks/t-slow/cancel", {"message": "", "status": "cancelled"})
    manager.on("DELETE /tasks/t-slow", {"message": "", "status": "cancelled"})
    ran = corral("validate", "--timeout", "0.2", "--json")
    assert ran.code == 1
    told = json.loads(ran.out)
    assert told["ok"] is False
    found = {w["name"]: (w["status"], w["detail"]) for w in told["workers"]}
    assert list(found) == [w["name"] for w in workers]
    assert found["good"][0] == "ok"
    assert found["raises"] == ("failed", "RuntimeError: no voice")
    assert found["wrong"][0] == found["other"][0] == "failed"
    assert found["slow"] == ("no answer", "none within 0.2 s: worker slow is busy")
    assert found["broken"] == ("not ready", "no module a")
    assert found["held"] == ("held", "operator: new disk")
    assert found["away"] == ("not ready", "its node is offline")
    cancels = [s for s in manager.seen if "t-slow" in s.path and s.method != "GET"]
    assert len(cancels) == 1, "it is called back"
    shown = corral("validate", "--timeout", "0.2")
    assert shown.code == 1
    assert "1 of 8 workers answered" in shown.err


def test_a_cluster_without_workers_is_not_well(
    manager: StandIn, corral: Corral
) -> None:
    cluster(manager, [], {})
    ran = corral("validate")
    assert (ran.code, "worker launch" in ran.err) == (1, True)
