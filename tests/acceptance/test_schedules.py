"""Schedules, webhooks and arrays on real clusters, whose managers are killed."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.cluster import ECHO, Cluster, until
from tests.unit.client.stand_in import Answer, serve

SCHEDULES = 20
HOOK = "POST /hook"
SCRIPTS = "corral.worker.script.worker:RunScriptWorker=run_script"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("schedules")
    # The receiver of webhooks is on this machine.
    started = Cluster.start(home, [ECHO, SCRIPTS], CORRAL_GATEWAY_ALLOW="127.0.0.1")
    try:
        started.serving("echo")
        yield started
    finally:
        started.stop()


def runs(cluster: Cluster) -> Counter[tuple[str, str]]:
    """How many tasks there are of each schedule and planned time."""
    found = cluster.client.list_tasks(task_type="echo")
    return Counter(
        (task.schedule, task.scheduled_at or "")
        for task in found
        if task.schedule is not None
    )


def restarted(cluster: Cluster, old: int) -> None:
    until("another manager", lambda: cluster.pid("manager") not in (0, old), 60)
    until("it answers", lambda: cluster.client.health(), 60)


def test_a_manager_killed_while_schedules_fire_loses_and_doubles_none(
    cluster: Cluster,
) -> None:
    client = cluster.client
    task = {"task_type": "echo", "parameters": {"message": "tick"}}
    # Away from the end of a minute, so that all of them are planned for the same.
    until("a minute begins", lambda: time.time() % 60 < 50, 20)
    for number in range(SCHEDULES):
        client.add_schedule("* * * * *", task, name=f"s{number}", missed="all")
    first = client.schedule("s0").next_at
    assert first is not None
    until("the minute ends", lambda: time.time() >= first.timestamp(), 70)
    # As it submits, and again as its follower makes up for it.
    for _ in range(2):
        restarted(cluster, cluster.kill("manager"))
    at = first.strftime("%Y-%m-%dT%H:%MZ")

    def of_that_minute() -> dict[str, int]:
        return {name: n for (name, when), n in runs(cluster).items() if when == at}

    until("every run is there", lambda: len(of_that_minute()) == SCHEDULES)
    until(
        "all have moved on",
        lambda: all(row.next_at and row.next_at > first for row in client.schedules()),
    )
    assert set(of_that_minute().values()) == {1}
    row = client.schedule("s0")
    assert row.last_task_id is not None
    assert client.result(row.last_task_id, timeout=60) == {"echoed": "tick"}
    for number in range(SCHEDULES):
        client.remove_schedule(f"s{number}")


def test_a_webhook_comes_through_a_receiver_that_fails_and_a_manager_that_dies(
    cluster: Cluster,
) -> None:
    client = cluster.client
    with serve() as receiver:
        receiver.on(HOOK, Answer({}, 503))
        submitted = client.submit(
            "echo", {"message": "hi"}, notify=f"{receiver.url}/hook"
        )
        until("the first try", lambda: receiver.seen)
        old = cluster.kill("manager")
        receiver.on(HOOK, Answer({}))
        before = len(receiver.seen)
        restarted(cluster, old)
        call = until("a later try", lambda: receiver.seen[before:])[0]
    assert call.json["task"]["task_id"] == submitted.task_id
    assert call.json["task"]["result"] == {"echoed": "hi"}
    assert cluster.corral("config", "--webhook-secret").out.strip()


def test_an_array_sent_twice_is_one_array(shared: Cluster) -> None:
    words = ("submit", "echo", '{"message": "{index}"}', "--array", "0-9:3", "--json")
    key = ("--idempotency-key", "sent-twice")
    first, again = (shared.corral(*words, *key) for _ in range(2))
    assert json.loads(first.out) == json.loads(again.out)
    waited = shared.corral("wait", "--array", "sent-twice")
    assert (waited.code, waited.out) == (0, "array sent-twice: 4 completed\n")
    listed = shared.corral("tasks", "--label", "array=sent-twice", "--json")
    results = {t["labels"]["array.index"]: t["result"] for t in json.loads(listed.out)}
    assert results == {str(n): {"echoed": n} for n in (0, 3, 6, 9)}


def test_a_script_finds_its_place_in_the_array(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.serving("run_script")
    (tmp_path / "p.csv").write_text("word\nred\nblue\n")
    ran = cluster.corral(
        *("run", "--json", "--sweep", str(tmp_path / "p.csv"), "--"),
        *("sh", "-c", "echo {word} $CORRAL_ARRAY_INDEX of $CORRAL_ARRAY_COUNT"),
    )
    assert ran.code == 0, ran.err
    printed = [task["result"]["stdout"].strip() for task in json.loads(ran.out)]
    assert printed == ["red 0 of 2", "blue 1 of 2"]


def test_what_is_left_of_an_array_is_cancelled(shared: Cluster) -> None:
    key = ("--idempotency-key", "left")
    shared.corral("submit", "sleep", '{"seconds": 60}', "--array", "0-9", *key)
    gone = shared.corral("cancel", "--array", "left")
    assert (gone.code, gone.out) == (0, "array left: 10 cancelled\n")


def test_a_schedule_lives_through_its_commands(shared: Cluster) -> None:
    added = shared.corral(
        *("schedule", "add", "0 3 * * *", "echo", '{"message": "hi"}'),
        *("--name", "nightly", "--tz", "Europe/Berlin"),
    )
    assert (added.code, added.out) == (0, "nightly\n"), added.err
    now = shared.corral("schedule", "run-now", "nightly")
    assert shared.client.result(now.out.strip(), timeout=60) == {"echoed": "hi"}
    shown = shared.corral("schedule", "show", "nightly")
    assert now.out.strip() in shown.out
    assert shared.corral("schedule", "pause", "nightly").code == 0
    listed = json.loads(shared.corral("schedule", "list", "--json").out)
    assert [row["status"] for row in listed] == ["paused"]
    assert shared.corral("schedule", "remove", "nightly").code == 0
    assert shared.corral("schedule", "show", "nightly").code == 1
