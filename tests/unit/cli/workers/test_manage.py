"""Worker launch by type, list, restart."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.conftest import Corral
from tests.unit.cli.up.test_sequence import WORKER
from tests.unit.client.stand_in import StandIn

NODES = [
    {"node_id": "n1", "status": "online", "workers": 3},
    {"node_id": "n2", "status": "online", "workers": 1},
    {"node_id": "n3", "status": "lost", "workers": 0},
]
READY = {"launch_id": "w1", "status": "pending", "worker_id": "w1"}


def on_launch(manager: StandIn) -> None:
    manager.on("GET /nodes", {"nodes": NODES})
    manager.on("POST /launch_worker", {"launch_id": "w1"})
    manager.on("POST /launch_worker_status", READY)
    manager.on("GET /workers/w1", WORKER)


def test_a_worker_of_a_type_is_launched_on_the_emptiest_node(
    manager: StandIn, corral: Corral
) -> None:
    on_launch(manager)
    ran = corral("worker", "launch", "upscaler")
    assert (ran.code, ran.out) == (0, "w1\n")
    (sent,) = manager.asked("POST /launch_worker")
    assert sent.json == {"node_url": "n2", "worker_type": "upscaler"}
    shown = json.loads(corral("worker", "launch", "upscaler", "--json").out)
    assert shown[0]["worker_id"] == "w1"


def test_node_name_and_url_of_a_worker_can_be_chosen(
    manager: StandIn, corral: Corral
) -> None:
    on_launch(manager)
    words = ["--node", "box", "--name", "big", "--url", "http://box:8100"]
    assert corral("worker", "launch", "upscaler", *words).code == 0
    assert manager.seen[0].json == {
        "node_url": "box",
        "worker_type": "upscaler",
        "worker_name": "big",
        "worker_url": "http://box:8100",
    }


def test_several_workers_of_a_type(manager: StandIn, corral: Corral) -> None:
    on_launch(manager)
    assert corral("worker", "launch", "upscaler", "--count", "2").out == "w1\nw1\n"
    assert len(manager.asked("POST /launch_worker")) == 2


def test_a_launch_that_fails_says_why(manager: StandIn, corral: Corral) -> None:
    on_launch(manager)
    failed = {"launch_id": "x", "status": "failed", "error": "no free port"}
    manager.on("POST /launch_worker_status", failed)
    ran = corral("worker", "launch", "upscaler")
    assert (ran.code, ran.err) == (1, "Error: no free port\n")


def test_without_a_node_it_says_how_to_get_one(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("GET /nodes", {"nodes": NODES[2:]})
    ran = corral("worker", "launch", "upscaler")
    assert ran.code == 1
    assert "corral join" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ["upscaler", "--params", "{}"],
        ["upscaler", "--job-type", "x"],
        ["upscaler", "--concurrency", "2"],
        ["upscaler", "--count", "2", "--name", "x"],
        ["upscaler", "--count", "2", "--url", "http://h:1"],
        ["a:B", "--url", "http://h:1"],
    ],
)
def test_an_option_that_would_be_ignored_is_a_usage_error(
    manager: StandIn, corral: Corral, words: list[str]
) -> None:
    assert corral("worker", "launch", *words).code == 2
    assert manager.seen == []


def test_worker_list_is_what_workers_shows(manager: StandIn, corral: Corral) -> None:
    manager.on("GET /workers", {"workers": [WORKER]})
    assert corral("worker", "list").out == corral("workers").out
    listed = corral("worker", "list", "--json", "--status", "online")
    assert json.loads(listed.out)[0]["worker_id"] == "w1"
    assert manager.seen[-1].query == {"status": "online"}


def test_restart_says_for_how_long(manager: StandIn, corral: Corral) -> None:
    told = {"message": "ok", "worker_id": "w1", "estimated_downtime": 2.5}
    manager.on("POST /workers/w1/restart", told)
    ran = corral("worker", "restart", "w1")
    assert ran.out == "restarting w1, away for about 2.5 s\n"
    shown = json.loads(corral("worker", "restart", "w1", "--json").out)
    assert shown == [told]
