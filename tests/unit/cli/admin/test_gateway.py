"""Route add, list, remove: the gateway's services, paths and job types."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import StandIn, fault

APP: dict[str, Any] = {
    "name": "echo",
    "url": "http://127.0.0.1:9000",
    "timeout": 30.0,
    "concurrency": 64,
    "job_types": ["double", "again"],
    "created_at": None,
    "routes": [{"path": "/train", "timeout": 600.0}],
}
KINDS = [
    {"name": "double", "target": "echo/train/run"},
    {"name": "again", "target": "echo/x"},
    {"name": "other", "target": "@orchestrator"},
]


def test_a_service_is_added_with_its_timeout(manager: StandIn, corral: Corral) -> None:
    manager.on("POST /apps", APP)
    ran = corral("route", "add", "echo", "http://127.0.0.1:9000", "--timeout", "30")
    assert (ran.code, ran.out) == (0, "added echo\n")
    assert manager.seen[0].json == {
        "name": "echo",
        "url": "http://127.0.0.1:9000",
        "timeout": 30.0,
    }


def test_a_path_of_a_known_service_gets_a_timeout_of_its_own(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("POST /apps/echo/routes", APP)
    ran = corral("route", "add", "echo", "--path", "train/", "--timeout", "600")
    assert (ran.code, ran.out) == (0, "added echo/train\n")
    assert manager.seen[0].json == {"path": "/train", "timeout": 600.0}


def test_service_path_timeout_and_job_type_in_one_go(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("POST /apps", APP)
    manager.on("POST /apps/echo/routes", APP)
    manager.on("POST /register_job_to_endpoint", None)
    words = ["--path", "/run", "--timeout", "5", "--job-type", "double"]
    assert corral("route", "add", "echo", "http://h:1", *words).code == 0
    assert [seen.json for seen in manager.seen] == [
        {"name": "echo", "url": "http://h:1"},
        {"path": "/run", "timeout": 5.0},
        {"job_type": "double", "endpoint": "echo/run"},
    ]


@pytest.mark.parametrize("words", [[], ["--timeout", "5"], ["--path", "/x"]])
def test_a_route_to_nowhere_is_a_usage_error(
    manager: StandIn, corral: Corral, words: list[str]
) -> None:
    assert corral("route", "add", "echo", *words).code == 2
    assert manager.seen == []


def test_a_refused_service_is_one_line(manager: StandIn, corral: Corral) -> None:
    manager.on("POST /apps", fault("invalid_field", 422, "url: it is ours"))
    ran = corral("route", "add", "echo", "http://127.0.0.1:8002")
    assert (ran.code, ran.err) == (1, "Error: url: it is ours\n")


def test_routes_are_listed_with_timeouts_and_job_types(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("GET /apps", {"apps": [APP]})
    manager.on("GET /job-types", {"job_types": KINDS})
    rows = json.loads(corral("route", "list", "--json").out)
    assert [(r["route"], r["timeout"], r["job_type"]) for r in rows] == [
        ("echo", 30.0, None),
        ("echo/train", 600.0, None),
        ("echo/train/run", 600.0, "double"),
        ("echo/x", 30.0, "again"),
    ]
    assert rows[2]["url"] == "http://127.0.0.1:9000/train/run"
    assert "echo/train/run" in corral("route", "list").out


def test_no_routes_say_what_to_do(manager: StandIn, corral: Corral) -> None:
    manager.on("GET /apps", {"apps": []})
    manager.on("GET /job-types", {"job_types": []})
    assert "corral route add" in corral("route", "list").err
    assert corral("route", "list", "--json").out == "[]\n"


def test_a_service_a_path_or_a_job_type_is_removed(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("DELETE /apps/echo", {"message": "gone"})
    manager.on("DELETE /apps/echo/routes", APP)
    manager.on("GET /apps", {"apps": [APP]})
    manager.on("POST /register_job_to_endpoint", None)
    assert corral("route", "remove", "echo").out == "removed echo\n"
    assert corral("route", "remove", "echo", "--path", "train").code == 0
    assert manager.seen[1].query == {"path": "/train"}
    assert corral("route", "remove", "echo", "--job-type", "double").code == 0
    assert manager.seen[-1].json == {"job_type": "double", "endpoint": "@orchestrator"}


def test_a_job_type_that_goes_elsewhere_is_not_touched(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("GET /apps", {"apps": [APP]})
    ran = corral("route", "remove", "echo", "--job-type", "other")
    assert ran.code == 1
    assert "'other'" in ran.err
    assert manager.asked("POST /register_job_to_endpoint") == []
