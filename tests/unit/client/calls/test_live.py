"""The call that hears of events as they happen."""

from __future__ import annotations

from itertools import islice

from corral.client import Client
from tests.unit.client.stand_in import DROP, StandIn


def event(seq: int, name: str = "task_completed") -> dict[str, object]:
    at = "2026-01-01T00:00:00Z"
    return {"event": name, "timestamp": at, "seq": seq, "data": {"task_id": "t"}}


def test_it_goes_on_through_lost_connections_and_hands_on_a_reset(
    manager: StandIn, client: Client
) -> None:
    manager.on(
        "GET /events/live",
        {"events": [], "next": 5},
        {"events": [event(7), event(8)], "next": 8},
        DROP,
        {"events": [event(20, "reset")], "next": 20},
        {"events": [event(21)], "next": 21},
    )
    wanted = {"task_type": "echo", "label": "a:b", "detail": "all"}
    heard = client.live_events(
        event_type="task_completed", task_type="echo", label="a:b", detail="all"
    )
    found = islice(heard, 4)
    assert [(e.seq, e.event) for e in found] == [
        (7, "task_completed"),
        (8, "task_completed"),
        (20, "reset"),
        (21, "task_completed"),
    ]
    asked = [call.query for call in manager.seen]
    assert asked[0] == {"type": "task_completed", **wanted}
    assert [query.get("after") for query in asked] == [None, "5", "8", "8", "20"]
    assert all("wait" in query for query in asked[1:])


def test_it_begins_where_it_is_told(manager: StandIn, client: Client) -> None:
    manager.on("GET /events/live", {"events": [event(9)], "next": 9})
    (first,) = islice(client.live_events(after=4), 1)
    assert first.data == {"task_id": "t"}
    assert manager.seen[0].query == {"after": "4"}
