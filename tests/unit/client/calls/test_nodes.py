"""The calls with which nodes are held, marked, planned for and let go."""

from __future__ import annotations

import pytest

from corral.client import Client
from corral.errors import Conflict, NodeNotFound
from tests.unit.client.stand_in import StandIn

ID = "n-0123456789"
NODE = {
    "node_id": ID,
    "hostname": "h",
    "status": "online",
    "scheduling": "cordoned",
    "holds": [{"source": "operator", "until": "2026-01-01T00:00:00Z"}],
}
LEFT = {"node_id": "n-9876543210", "hostname": "h", "status": "left"}
WINDOW = {"name": "w", "duration": 60.0, "cron": "@daily"}


def test_a_node_is_named_by_its_id_or_a_hostname_of_its_own(
    manager: StandIn, client: Client
) -> None:
    manager.on("GET /nodes", {"nodes": [LEFT, NODE]})
    manager.on(f"POST /nodes/{ID}/cordon", NODE)
    assert client.cordon_node(ID, reason="cables").scheduling == "cordoned"
    assert not manager.asked("GET /nodes")
    found = client.cordon_node("h", until=60)
    assert found.holds[0].until is not None
    sent = [ask.json for ask in manager.asked(f"POST /nodes/{ID}/cordon")]
    assert sent == [{"reason": "cables"}, {"until": 60}]
    with pytest.raises(NodeNotFound):
        client.uncordon_node("nobody")


def test_a_name_that_several_nodes_have_is_refused_with_their_ids(
    manager: StandIn, client: Client
) -> None:
    twin = {**NODE, "node_id": "n-1111111111"}
    manager.on("GET /nodes", {"nodes": [NODE, twin]})
    with pytest.raises(Conflict, match=f"{ID}, n-1111111111"):
        client.drain_node("h")


def test_each_call_says_what_it_means(manager: StandIn, client: Client) -> None:
    path = f"/nodes/{ID}"
    for verb in ("drain", "uncordon"):
        manager.on(f"POST {path}/{verb}", NODE)
    manager.on(f"PATCH {path}", NODE)
    manager.on(f"DELETE {path}", {"message": "m", "node_id": ID, "status": "leaving"})
    manager.on(f"GET {path}/windows", {"windows": [WINDOW]})
    manager.on(f"POST {path}/windows", {"windows": [WINDOW]})
    manager.on(f"DELETE {path}/windows/w", {"windows": []})
    client.drain_node(ID)
    client.uncordon_node(ID)
    client.change_node(ID, labels={"a": "b", "c": None}, taints={"spot": ""})
    assert client.remove_node(ID, force=True) == "leaving"
    assert client.windows(ID)[0].name == "w"
    client.add_window(ID, "w", 60, cron="@daily", drain=False)
    assert client.remove_window(ID, "w") == []
    assert manager.asked(f"PATCH {path}")[0].json == {
        "labels": {"a": "b", "c": None},
        "taints": {"spot": ""},
    }
    assert manager.asked(f"DELETE {path}")[0].query == {"force": "true"}
    assert manager.asked(f"POST {path}/windows")[0].json == {
        "name": "w",
        "duration": 60,
        "cron": "@daily",
        "drain": False,
    }
