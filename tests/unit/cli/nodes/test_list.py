"""`corral breaker` and what `corral nodes` says of breakers."""

from __future__ import annotations

import json

from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import StandIn

BREAKER = {
    "key": "my:Worker",
    "state": "open",
    "failures": 5,
    "window_s": 300.0,
    "age_s": 18.0,
    "next_probe_s": 42.0,
    "error": "no module",
}
NODE = {"node_id": "n1", "hostname": "host", "status": "online", "workers": 1}


def test_open_breakers_are_listed_with_their_error(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("GET /nodes", {"nodes": [{**NODE, "breakers": [BREAKER]}]})
    for command in (("breaker", "list"), ("nodes",)):
        out = corral(*command).out
        assert "my:Worker" in out
        assert "42 s" in out
        assert "no module" in out
    listed = json.loads(corral("breaker", "list", "--json").out)
    assert listed == [{"node_id": "n1", **BREAKER}]


def test_without_any_open_breaker_that_is_said(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("GET /nodes", {"nodes": [NODE]})
    assert "No breaker is open" in corral("breaker", "list").err
    assert "BREAKER" not in corral("nodes").out


def test_reset_names_what_it_reset(manager: StandIn, corral: Corral) -> None:
    told = {"node_id": "n1", "reset": ["my:Worker"], "workers": ["w1"]}
    manager.on("POST /nodes/n1/breakers/reset", told)
    assert corral("breaker", "reset", "n1", "my:Worker").out == "reset my:Worker\n"
    corral("breaker", "reset", "n1")
    asked = manager.asked("POST /nodes/n1/breakers/reset")
    assert [request.json for request in asked] == [{"key": "my:Worker"}, {}]
    manager.on("POST /nodes/n1/breakers/reset", {**told, "reset": []})
    assert "No worker of n1 waits" in corral("breaker", "reset", "n1").err
