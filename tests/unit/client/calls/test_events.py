"""The calls about events, alerts and health."""

from __future__ import annotations

from itertools import islice

from corral.client import Client
from tests.unit.client.stand_in import DROP, StandIn

ALERT = {
    "id": 7,
    "rule": "node_disk",
    "subject": "n1",
    "severity": "warning",
    "title": "n1: disk 91 % in use",
    "value": 91.0,
}


def event(seq: int) -> dict[str, object]:
    return {"seq": seq, "event_type": "node_lost", "title": str(seq)}


def test_events_are_followed_without_loss_or_repetition(
    manager: StandIn, client: Client
) -> None:
    manager.on(
        "GET /events",
        {"events": [event(3), event(4)], "next": 5},
        {"events": [], "next": 9},
        DROP,
        {"events": [event(12)], "next": 12},
    )
    found = islice(client.follow_events(limit=2, severity="warning", node_id="n1"), 3)
    assert [e.seq for e in found] == [3, 4, 12]
    asked = [call.query for call in manager.seen]
    assert asked[0] == {"limit": "2", "severity": "warning", "node_id": "n1"}
    assert [query.get("after") for query in asked] == [None, "5", "9", "9"]
    assert all(query["severity"] == "warning" for query in asked)
    assert all("wait" in query for query in asked[1:])


def test_alerts_are_listed_and_acknowledged(manager: StandIn, client: Client) -> None:
    manager.on("GET /alerts", {"alerts": [ALERT], "total": 1})
    seen = {**ALERT, "acknowledged_at": "2026-01-01T00:00:00Z", "acknowledged_by": "me"}
    manager.on("POST /alerts/7/acknowledge", seen)
    (alert,) = client.alerts()
    assert (alert.id, alert.status) == (7, "open")
    client.alerts(is_open=False, severity="error", limit=3)
    asked = [call.query for call in manager.asked("GET /alerts")]
    assert asked == [
        {"state": "open"},
        {"state": "all", "severity": "error", "limit": "3"},
    ]
    assert client.acknowledge_alert(7, note="mine").status == "acknowledged"
    assert manager.seen[-1].json == {"note": "mine"}


def test_health_is_typed(manager: StandIn, client: Client) -> None:
    reason = {"rule": "node_disk", "severity": "warning", "subject": "n1", "x": 1}
    rule = {"rule": "node_disk", "looks_at": "disk", "limit": 90.0}
    told = {"status": "degraded", "reasons": [reason], "rules": [rule]}
    manager.on("GET /cluster/health", told)
    health = client.cluster_health()
    assert (health.status, health.reasons[0].subject) == ("degraded", "n1")
    assert health.rules[0].limit == 90.0
