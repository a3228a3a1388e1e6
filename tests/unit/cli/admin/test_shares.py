"""Shares, pauses and batches of job types on the command line; arrays with a limit."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.conftest import Corral
from tests.unit.client.stand_in import StandIn, fault

SHARE = {
    "name": "team=vision",
    "weight": 2.0,
    "max_running": 10,
    "gpu_seconds_per_day": 3600.0,
    "running": 3,
    "waiting": 7,
    "gpu_seconds_today": 120.4,
}
PUT = "PUT /shares"


def test_a_share_is_set_with_what_was_given(manager: StandIn, corral: Corral) -> None:
    manager.on(PUT, SHARE)
    ran = corral("share", "set", "team=vision", "--weight", "2", "--max-running", "10")
    assert (ran.code, ran.out) == (0, "set team=vision\n")
    (seen,) = manager.asked(PUT)
    assert seen.json == {"name": "team=vision", "weight": 2.0, "max_running": 10}


def test_shares_are_listed_with_how_they_stand(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("GET /shares", {"shares": [SHARE, {"name": "owner=*", "weight": 1.0}]})
    ran = corral("share", "list")
    assert ran.code == 0
    words = [line.split() for line in ran.out.splitlines()[1:]]
    assert words[0] == ["team=vision", "2", "3", "of", "10", "7", "120", "of", "3600"]
    assert words[1] == ["owner=*", "1", "0", "0", "0"]
    ran = corral("share", "list", "--json")
    assert json.loads(ran.out)[0]["max_running"] == 10


def test_no_shares_says_how_to_set_one(manager: StandIn, corral: Corral) -> None:
    manager.on("GET /shares", {"shares": []})
    assert "corral share set" in corral("share", "list").err


def test_a_share_is_removed(manager: StandIn, corral: Corral) -> None:
    manager.on("DELETE /shares/team%3Dvision", {"message": "ok", "name": "x"})
    assert corral("share", "remove", "team=vision").out == "removed team=vision\n"


def test_an_unknown_share_is_said_so(manager: StandIn, corral: Corral) -> None:
    manager.on("DELETE /shares/x%3Dy", fault("not_found", 404, "no share 'x=y'"))
    ran = corral("share", "remove", "x=y")
    assert ran.code == 1
    assert "no share" in ran.err


def test_a_job_type_is_paused_and_resumed(manager: StandIn, corral: Corral) -> None:
    for verb, word in (("pause", "paused"), ("resume", "resumed")):
        manager.on(f"POST /job-types/train/{verb}", {"name": "train"})
        ran = corral("job-type", verb, "train")
        assert (ran.code, ran.out) == (0, f"{word} train\n")


def test_a_batch_limit_is_set_shown_and_taken_back(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("POST /job-types", {"name": "embed"})
    manager.on("PATCH /job-types/embed", {"name": "embed"})
    kinds = [{"name": "embed", "batch_limit": 32}, {"name": "echo"}]
    manager.on("GET /job-types", {"job_types": kinds})
    assert corral("job-type", "add", "embed", "--batch-limit", "8").code == 0
    assert manager.seen[-1].json == {"name": "embed", "batch_limit": 8}
    for told, limit in (("32", 32), ("0", None)):
        ran = corral("job-type", "set", "embed", "--batch-limit", told)
        assert (ran.code, ran.out) == (0, "set embed\n")
        assert manager.seen[-1].json == {"batch_limit": limit}
    rows = [line.split() for line in corral("job-type", "list").out.splitlines()]
    batch = rows[0].index("BATCH") - 3  # names of columns with two words stand before
    assert [(row[0], row[batch]) for row in rows[1:]] == [
        ("embed", "32"),
        ("echo", "-"),
    ]
    told = json.loads(corral("job-type", "list", "--json").out)
    assert [kind["batch_limit"] for kind in told] == [32, None]


@pytest.mark.spec("C56")
def test_results_are_kept_for_a_time_shown_and_forgotten(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("POST /job-types", {"name": "embed"})
    manager.on("PATCH /job-types/embed", {"name": "embed"})
    manager.on("DELETE /job-types/embed/cache", {"forgotten": 1})
    figures = {"hits": 2, "misses": 1, "hit_rate": 0.6667, "entries": 1, "bytes": 300}
    kinds = [
        {"name": "embed", "cache_ttl_s": 7200, "cache": figures},
        {"name": "label", "cache_ttl_s": 60, "cache": {"hit_rate": None}},
        {"name": "echo"},
    ]
    manager.on("GET /job-types", {"job_types": kinds})
    assert corral("job-type", "add", "embed", "--cache-ttl", "3600").code == 0
    assert manager.seen[-1].json == {"name": "embed", "cache_ttl_s": 3600.0}
    for told, ttl in (("60", 60.0), ("0", None)):
        ran = corral("job-type", "set", "embed", "--cache-ttl", told)
        assert (ran.code, ran.out) == (0, "set embed\n")
        assert manager.seen[-1].json == {"cache_ttl_s": ttl}
    rows = corral("job-type", "list").out.splitlines()
    assert [row.split("  ")[-1].strip() for row in rows] == [
        "CACHE",
        "2 h, 67% hits",
        "60 s",
        "-",
    ]
    told_of = json.loads(corral("job-type", "list", "--json").out)
    assert told_of[0]["cache"] == figures
    ran = corral("job-type", "clear-cache", "embed")
    assert (ran.code, ran.out) == (0, "forgot 1 result of embed\n")


@pytest.mark.parametrize("told", ["-1", "1e12", "long"])
def test_a_time_that_is_none_is_refused(corral: Corral, told: str) -> None:
    for verb in ("add", "set"):
        assert corral("job-type", verb, "embed", "--cache-ttl", told).code == 2


def test_a_task_tells_whose_result_it_was_given(
    manager: StandIn, corral: Corral
) -> None:
    told = {"task_id": "t2", "task_type": "embed", "status": "completed"}
    manager.on("GET /tasks/t2", {**told, "result": 1, "cached_from": "t1"})
    rows = [line.split("  ") for line in corral("task", "t2").out.splitlines()]
    assert ["kept from", "t1"] in [[row[0], row[-1].strip()] for row in rows]


def test_a_task_may_ask_to_run_anew(manager: StandIn, corral: Corral) -> None:
    manager.on("POST /tasks", {"task_id": "t1", "status": "queued"})
    assert corral("submit", "embed", "--no-cache").code == 0
    assert manager.seen[-1].json["no_cache"] is True
    assert corral("submit", "embed").code == 0
    assert "no_cache" not in manager.seen[-1].json


@pytest.mark.parametrize("told", ["-1", "10001", "many", ""])
def test_a_batch_limit_that_is_none_is_refused(corral: Corral, told: str) -> None:
    for verb in ("add", "set"):
        assert corral("job-type", verb, "embed", "--batch-limit", told).code == 2
    assert corral("job-type", "set", "embed").code == 2


def test_an_array_with_a_limit_is_a_group_of_its_own(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("POST /tasks/batch", {"task_ids": ["t0", "t1", "t2"], "errors": []})
    ran = corral("submit", "echo", "--array", "0-2%2")
    assert ran.code == 0, ran
    (seen,) = manager.asked("POST /tasks/batch")
    array_id = ran.out.strip()
    told = [(t["group"], t["group_limit"]) for t in seen.json["tasks"]]
    assert told == [(array_id, 2)] * 3


def test_a_task_says_its_group_and_that_it_may_be_stopped(
    manager: StandIn, corral: Corral
) -> None:
    manager.on("POST /tasks", {"task_id": "t", "status": "queued"})
    options = ["--group", "g", "--group-limit", "3", "--preemptible"]
    assert corral("submit", "echo", *options).code == 0
    (seen,) = manager.asked("POST /tasks")
    assert (seen.json["group"], seen.json["group_limit"]) == ("g", 3)
    assert seen.json["preemptible"] is True
