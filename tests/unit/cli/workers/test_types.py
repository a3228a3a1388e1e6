"""Limits of worker types on the command line, and how autoscaling stands."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import StandIn, fault

KIND: dict[str, Any] = {
    "name": "mine",
    "worker_class": "pkg:Class",
    "params": {"a": 1},
    "job_type": "echo",
    "environment": None,
    "version": 2,
    "digest": "d",
    "min_workers": 1,
    "max_workers": 4,
    "gpus": "1",
}
TYPE: dict[str, Any] = {
    "worker_type": "mine",
    "job_type": "echo",
    "min_workers": 1,
    "max_workers": 4,
    "workers": 4,
    "serving": 3,
    "starting": 1,
    "leaving": 0,
    "waiting": 12,
    "predicted_wait_s": 41.5,
    "blocked": "it has its maximum of 4 worker(s)",
    "last": {
        "at": "2026-01-01T00:00:00Z",
        "event": "cluster_scaled_up",
        "worker_id": "w-1",
        "node_id": "n-1",
        "reason": "9 task(s) of 'echo' wait",
    },
}
SCALING: dict[str, Any] = {
    "enabled": True,
    "max_workers": 10,
    "total_workers": 5,
    "wait_s": 30.0,
    "idle_s": 300.0,
    "cooldown_s": 30.0,
    "types": [TYPE],
}
PUT = "PUT /worker-types/mine/scaling"


def test_limits_are_set_and_taken_away(manager: StandIn, corral: Corral) -> None:
    manager.on(PUT, KIND)
    ran = corral("worker-type", "set", "mine", "--min", "1", "--max", "4")
    assert (ran.code, ran.out) == (0, "mine: 1 to 4, by demand\n")
    manager.on(PUT, {**KIND, "min_workers": 0, "max_workers": None})
    ran = corral("worker-type", "set", "mine", "--off")
    assert (ran.code, ran.out) == (0, "mine: not scaled by demand\n")
    assert [seen.json for seen in manager.asked(PUT)] == [
        {"min_workers": 1, "max_workers": 4},
        {"min_workers": 0, "max_workers": None},
    ]


@pytest.mark.parametrize(
    "options", [[], ["--min", "1"], ["--max", "1", "--off"], ["--off", "--min", "1"]]
)
def test_limits_that_say_nothing_are_refused(
    manager: StandIn, corral: Corral, options: list[str]
) -> None:
    ran = corral("worker-type", "set", "mine", *options)
    assert ran.code == 2
    assert "--m" in ran.err
    assert manager.asked(PUT) == []


def test_bad_limits_are_told_as_the_manager_tells_them(
    manager: StandIn, corral: Corral
) -> None:
    manager.on(PUT, fault("invalid_field", 422, "min_workers must be 0 to 1, not 2"))
    ran = corral("worker-type", "set", "mine", "--min", "2", "--max", "1")
    assert ran.code in (1, 2, 3)
    assert "min_workers must be 0 to 1" in ran.err
    assert "Traceback" not in ran.err


def test_a_type_is_added_with_limits_and_cards(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("POST /register_worker_type", None)
    words = ["--job-type", "echo", "--gpus", "1", "--min", "0", "--max", "4"]
    assert corral("worker-type", "add", "mine", "pkg:Class", *words).code == 0
    (seen,) = manager.asked("POST /register_worker_type")
    assert (seen.json["min_workers"], seen.json["max_workers"]) == (0, 4)
    assert seen.json["gpus"] == "1"


def test_a_type_is_shown_with_its_limits(manager: StandIn, corral: Corral) -> None:
    manager.on("GET /worker-types", {"worker_types": [KIND]})
    ran = corral("worker-type", "show", "mine")
    assert ran.code == 0
    assert "1 to 4, by demand" in ran.out
    shown = json.loads(corral("worker-type", "show", "mine", "--json").out)
    assert (shown["max_workers"], shown["gpus"]) == (4, "1")
    ran = corral("worker-type", "show", "other")
    assert ran.code == 1
    assert "corral worker-type list" in ran.err
    line = corral("worker-type", "list").out.splitlines()[1]
    assert line.split()[-3:] == ["1", "1", "4"]


def test_scaling_shows_workers_wait_and_the_last_decision(
    manager: StandIn, corral: Corral
) -> None:
    unserved = {**TYPE, "worker_type": "other", "predicted_wait_s": None}
    unserved |= {"blocked": None, "last": None, "workers": 0, "starting": 0}
    manager.on("GET /cluster/scaling", {**SCALING, "types": [TYPE, unserved]})
    ran = corral("scaling")
    assert ran.code == 0
    one, other = ran.out.splitlines()[1:]
    assert "4 (1 starting)" in one
    assert "41.5 s" in one
    assert "no more: it has its maximum of 4 worker(s); up " in one
    assert one.endswith("ago: 9 task(s) of 'echo' wait")
    assert "unserved" in other
    shown = json.loads(corral("scaling", "--json").out)
    assert shown["types"][0]["last"]["worker_id"] == "w-1"


def test_scaling_says_what_is_missing(manager: StandIn, corral: Corral) -> None:
    off = {**SCALING, "enabled": False, "types": []}
    manager.on("GET /cluster/scaling", off)
    ran = corral("scaling")
    assert ran.code == 0
    assert "CORRAL_AUTO_SCALE_ENABLED" in ran.err
    assert "corral worker-type set" in ran.err
