"""`corral status`: facts on top, a row for each node, workers below theirs."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.conftest import Corral
from tests.unit.cli.up.test_sequence import NODE, STATUS, WORKER
from tests.unit.client.stand_in import StandIn, fault

MASTER = {**NODE, "node_id": "n0", "hostname": "zeus", "node_type": "master"}


@pytest.fixture
def told(manager: StandIn) -> StandIn:
    manager.on("GET /cluster/status", STATUS)
    manager.on("GET /nodes", {"nodes": [NODE, MASTER]})
    manager.on("GET /workers", {"workers": [WORKER]})
    return manager


def row(text: str, first: str) -> list[str]:
    return next(line for line in text.splitlines() if line.startswith(first)).split()


def test_facts_stand_above_a_row_for_each_node(told: StandIn, corral: Corral) -> None:
    ran = corral("status")
    assert "healthy" in ran.out
    assert told.url in ran.out
    assert "3 queued, 1 running, 40 completed" in ran.out
    assert "1 active of 2" in ran.out
    assert "1.0 GiB free of 2.0 GiB" in ran.out
    assert "alerts" not in ran.out
    assert ran.err == ""
    assert row(ran.out, "host")[:5] == ["host", "worker", "online", "12", "%"]
    # Two tasks of its worker, which is shown only when asked for.
    assert row(ran.out, "host")[6] == "2"
    assert ran.out.index("zeus") < ran.out.index("host ")
    assert "[red]echo" not in ran.out


def test_workers_stand_below_their_node(told: StandIn, corral: Corral) -> None:
    out = corral("status", "--workers").out
    assert row(out, "- [red]echo[/red]")[2:4] == ["online", "echo,"]


def test_json_keeps_its_keys_and_has_the_nodes(told: StandIn, corral: Corral) -> None:
    plain = json.loads(corral("status", "--json").out)
    assert {key: plain[key] for key in STATUS} == STATUS
    assert [(n["hostname"], n["tasks"]) for n in plain["nodes"]] == [
        ("zeus", 0),
        ("host", 2),
    ]
    assert "workers" not in plain
    more = json.loads(corral("status", "--json", "--workers").out)
    assert more["workers"][0]["worker_id"] == "w1"


def test_health_and_alerts_are_shown_where_the_manager_has_them(
    told: StandIn, corral: Corral
) -> None:
    wrong = {"rule": "disk", "subject": "a", "severity": "warning"}
    reasons = [{**wrong, "title": "disk of a is full"}, {**wrong, "rule": "queue"}]
    told.on("GET /cluster/health", {"status": "degraded", "reasons": reasons})
    alerts = [{**wrong, "id": n, "title": f"alert {n}"} for n in range(5)]
    told.on("GET /alerts", {"alerts": alerts, "total": 5})
    out = corral("status").out
    assert "degraded (disk of a is full; queue)" in out
    assert "5 open: alert 0; alert 1; alert 2; and 2 more" in out
    plain = json.loads(corral("status", "--json").out)
    assert [alert["id"] for alert in plain["alerts"]] == [0, 1, 2, 3, 4]
    assert plain["reasons"][0]["title"] == "disk of a is full"


def test_a_node_that_takes_no_work_says_so(told: StandIn, corral: Corral) -> None:
    told.on("GET /nodes", {"nodes": [{**NODE, "scheduling": "draining"}]})
    assert "online, draining" in corral("status").out


def test_another_fault_of_the_health_is_an_error(told: StandIn, corral: Corral) -> None:
    told.on("GET /cluster/health", fault("conflict", 409, "not now"))
    assert corral("status").code == 1


@pytest.mark.parametrize(
    ("change", "advice"),
    [({"total_nodes": 0}, "corral join"), ({"total_workers": 0}, "worker launch")],
)
def test_an_empty_cluster_says_what_to_do(
    manager: StandIn, corral: Corral, change: dict[str, int], advice: str
) -> None:
    manager.on("GET /cluster/status", {**STATUS, **change})
    manager.on("GET /nodes", {"nodes": []})
    manager.on("GET /workers", {"workers": []})
    ran = corral("status")
    assert advice in ran.err
    assert "HEARTBEAT" not in ran.out


def test_seconds_are_for_watching(told: StandIn, corral: Corral) -> None:
    assert corral("status", "5").code == 2
