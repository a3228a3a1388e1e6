"""Events and alerts on the command line."""

from __future__ import annotations

import json

from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import StandIn, fault

ALERT = {
    "id": 7,
    "rule": "node_disk",
    "subject": "n1",
    "severity": "warning",
    "title": "box: disk 91 % in use\x1b[31m",
    "raised_at": "2026-01-01T00:00:00Z",
}
EVENT = {
    "seq": 4,
    "event_type": "node_lost",
    "severity": "critical",
    "title": "box is lost\x1b[31m",
    "source_node_id": "n1",
    "at": "2026-01-01T00:00:00Z",
}


def test_alerts_are_listed_with_the_health(manager: StandIn, corral: Corral) -> None:
    manager.on("GET /alerts", {"alerts": [ALERT], "total": 1})
    manager.on("GET /cluster/health", {"status": "degraded"})
    ran = corral("alerts", "--all", "--severity", "warning")
    assert ran.code == 0
    assert "box: disk 91 % in use" in ran.out
    assert "\x1b" not in ran.out
    assert ran.err == "The cluster is degraded.\n"
    assert manager.seen[0].query == {
        "state": "all",
        "severity": "warning",
        "limit": "100",
    }
    assert json.loads(corral("alerts", "--json").out)[0]["id"] == 7


def test_without_alerts_only_the_health_is_told(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("GET /alerts", {"alerts": [], "total": 0})
    manager.on("GET /cluster/health", {"status": "healthy"})
    ran = corral("alerts")
    assert (ran.out, ran.err) == ("", "The cluster is healthy.\n")


def test_alerts_are_acknowledged_with_a_note(manager: StandIn, corral: Corral) -> None:
    manager.on("POST /alerts/7/acknowledge", ALERT)
    manager.on("POST /alerts/8/acknowledge", fault("conflict", 409, "alert 8 is over"))
    ran = corral("alerts", "ack", "7", "--note", "I empty it")
    assert ran.out.startswith("acknowledged 7: box: disk 91 % in use")
    assert manager.seen[0].json == {"note": "I empty it"}
    late = corral("alerts", "ack", "8")
    assert (late.code, late.err) == (1, "Error: alert 8 is over\n")
    assert corral("alerts", "ack", "x").code == 2


def test_events_are_told_a_line_each(manager: StandIn, corral: Corral) -> None:
    manager.on("GET /events", {"events": [EVENT], "next": 4})
    words = ["--severity", "error", "--type", "node_lost,alert", "--node", "n1"]
    ran = corral("events", *words, "-n", "5")
    assert "critical  node_lost  n1  box is lost" in ran.out
    assert ran.out.count("\n") == 1
    assert "\x1b" not in ran.out
    assert manager.seen[0].query == {
        "severity": "error",
        "type": "node_lost,alert",
        "node_id": "n1",
        "limit": "5",
    }
    assert json.loads(corral("events", "--json").out) == {
        **EVENT,
        **dict.fromkeys(("acknowledged_at", "acknowledged_by", "resolved_at")),
        "data": {},
        "description": "",
        "task_ids": [],
    }


def test_followed_events_go_on_after_what_was_told(
    manager: StandIn, corral: Corral
) -> None:
    manager.on(
        "GET /events",
        {"events": [EVENT], "next": 4},
        {"events": [{**EVENT, "seq": 5}], "next": 5},
        fault("forbidden", 403, "enough"),
    )
    ran = corral("events", "--follow", "--json")
    assert [json.loads(line)["seq"] for line in ran.out.splitlines()] == [4, 5]
    assert [call.query.get("after") for call in manager.seen] == [None, "4", "5"]
    assert ran.code == 1


def test_no_events_of_a_kind_is_said(manager: StandIn, corral: Corral) -> None:
    manager.on("GET /events", {"events": [], "next": 0})
    assert "Nothing" in corral("events", "--type", "node_lost").err


def live(name: str, **data: object) -> dict[str, object]:
    at = "2026-01-01T00:00:00Z"
    return {"event": name, "timestamp": at, "seq": 1, "data": data}


def test_live_events_are_told_a_line_each(manager: StandIn, corral: Corral) -> None:
    progress = {"fraction": 0.5, "message": "half\x1b[31m"}
    rows = [
        live("task_progress", task_id="t1", status="running", progress=progress),
        live("task_failed", task_id="t2", error={"kind": "x", "message": "it broke"}),
        live("node_lost", title="box is lost", node_id="n1"),
        live("cluster_summary", queued_tasks=0, running_tasks=0),
    ]
    end = fault("forbidden", 403, "enough")
    manager.on("GET /events/live", {"events": rows, "next": 9}, end)
    words = ["--task-type", "echo", "--label", "a=b", "--summary", "--worker", "w"]
    ran = corral("events", "--live", *words, "--task", "t", "--node", "n")
    assert "task_progress  t1  running  50%  half" in ran.out
    assert "task_failed  t2  it broke" in ran.out
    assert "node_lost  n1  box is lost" in ran.out
    assert "cluster_summary  queued_tasks=0  running_tasks=0" in ran.out
    assert "\x1b" not in ran.out
    assert manager.seen[0].query == {
        "task_type": "echo",
        "label": "a:b",
        "detail": "summary",
        "worker_id": "w",
        "task_id": "t",
        "node_id": "n",
    }
    manager.on("GET /events/live", {"events": rows[:1], "next": 9}, end)
    told = json.loads(corral("events", "--live", "--json").out)
    assert told["data"]["task_id"] == "t1"


def test_choices_of_live_events_are_for_those_alone(corral: Corral) -> None:
    assert "--live" in corral("events", "--task", "t").err
    ran = corral("events", "--live", "--severity", "error")
    assert (ran.code, "--severity" in ran.err) == (2, True)
