"""Many tasks: few requests, ids in order, refusals that hinder no other."""

from __future__ import annotations

import math
from typing import Any

import pytest

from corral import errors
from corral.client import Client
from corral.client.calls.tasks import BATCH_TASKS
from tests.unit.client.stand_in import DROP, Answer, Seen, StandIn, task_out


def _accept(seen: Seen) -> Answer:
    tasks = seen.json["tasks"]
    no = [i for i, task in enumerate(tasks) if task["parameters"] == "bad"]
    return Answer(
        {
            "task_ids": [
                None if i in no else task["task_id"] for i, task in enumerate(tasks)
            ],
            "errors": [
                {"index": i, "code": "invalid_field", "message": "bad"} for i in no
            ],
            "accepted": len(tasks) - len(no),
            "refused": len(no),
        },
        201,
    )


def test_many_tasks_travel_in_few_requests_and_keep_their_order(
    manager: StandIn, client: Client
) -> None:
    manager.on("POST /tasks/batch", _accept)
    steps: list[tuple[int, int]] = []
    ids = client.submit_many(
        [("echo", {"message": n}) for n in range(5000)],
        on_progress=lambda done, total: steps.append((done, total)),
    )
    sent = [task for seen in manager.seen for task in seen.json["tasks"]]
    assert [len(seen.json["tasks"]) for seen in manager.seen] == [2000, 2000, 1000]
    assert [task["parameters"]["message"] for task in sent] == list(range(5000))
    assert ids == [task["task_id"] for task in sent]
    assert len(set(ids)) == 5000
    assert steps == [(2000, 5000), (4000, 5000), (5000, 5000)]


def test_large_tasks_are_split_by_size(manager: StandIn, client: Client) -> None:
    manager.on("POST /tasks/batch", _accept)
    text = "x" * 1_000_000
    client.submit_many([{"task_type": "echo", "parameters": text}] * 20)
    assert len(manager.seen) == 2
    assert all(len(seen.body) <= 16 * 1024 * 1024 for seen in manager.seen)


def test_batch_sent_again_after_a_lost_answer_has_the_same_ids(
    manager: StandIn, client: Client
) -> None:
    manager.on("POST /tasks/batch", DROP, _accept)
    client.submit_many([("echo", 1), ("echo", 2)])
    assert manager.seen[0].body == manager.seen[1].body


def test_ids_and_keys_of_the_caller_are_kept(manager: StandIn, client: Client) -> None:
    manager.on("POST /tasks/batch", {"task_ids": ["mine", "other"], "errors": []})
    tasks: list[dict[str, Any]] = [
        {"task_type": "echo", "task_id": "mine"},
        {"task_type": "echo", "idempotency_key": "k"},
    ]
    assert client.submit_many(tasks) == ["mine", "other"]
    assert manager.seen[0].json["tasks"] == tasks


def test_refused_tasks_are_told_by_place_and_the_others_are_in(
    manager: StandIn, client: Client
) -> None:
    manager.on("POST /tasks/batch", _accept)
    tasks = [("echo", 1), ("echo", math.nan), ("echo", "bad"), ("echo", 4)]
    batch = client.submit_batch(tasks)
    assert [refusal.index for refusal in batch.errors] == [1, 2]
    assert [task_id is None for task_id in batch.task_ids] == [False, True, True, False]


def test_submit_many_raises_what_was_refused_after_sending_all(
    manager: StandIn, client: Client
) -> None:
    manager.on("POST /tasks/batch", _accept)
    tasks = [("echo", "bad")] + [("echo", n) for n in range(BATCH_TASKS)]
    with pytest.raises(errors.InvalidField, match="1 of 2001 tasks were refused") as no:
        client.submit_many(tasks)
    assert no.value.refused[0].index == 0
    assert len([task_id for task_id in no.value.task_ids if task_id]) == BATCH_TASKS


def test_no_tasks_need_no_request(manager: StandIn, client: Client) -> None:
    assert client.submit_many([]) == []
    assert client.wait_many([]) == []
    assert manager.seen == []


def test_wait_many_asks_by_the_thousand_and_again_for_what_is_pending(
    manager: StandIn, client: Client
) -> None:
    slow = {"7", "1500"}

    def collect(seen: Seen) -> Answer:
        ids = seen.json["task_ids"]
        late = [i for i in ids if i in slow] if len(manager.seen) < 3 else []
        ended = [task_out(i) for i in ids if i not in late]
        return Answer({"tasks": ended, "pending": late, "unknown": []})

    manager.on("POST /tasks/collect", collect)
    steps: list[tuple[int, int]] = []
    ids = [str(n) for n in range(2500)]
    tasks = client.wait_many(ids, on_progress=lambda *step: steps.append(step))
    assert [task.task_id for task in tasks] == ids
    assert [len(s.json["task_ids"]) for s in manager.seen] == [1000, 1000, 502]
    assert steps[-1] == (2500, 2500)


def test_wait_many_names_an_unknown_task(manager: StandIn, client: Client) -> None:
    manager.on("POST /tasks/collect", {"tasks": [], "pending": [], "unknown": ["x"]})
    with pytest.raises(errors.TaskNotFound, match="no task x"):
        client.wait_many(["x"])


def test_wait_many_gives_up_in_time(manager: StandIn, client: Client) -> None:
    manager.on("POST /tasks/collect", {"tasks": [], "pending": ["a"], "unknown": []})
    with pytest.raises(TimeoutError, match="1 of 1 tasks have not ended after 0 s"):
        client.wait_many(["a"], timeout=0)


def test_list_stops_at_its_limit_and_passes_filters_on(
    manager: StandIn, client: Client
) -> None:
    page = {"tasks": [task_out(str(n)) for n in range(200)], "next_cursor": "more"}
    manager.on("GET /tasks", page)
    found = list(client.list_tasks(status="failed", dead=True, limit=250))
    assert len(found) == 250
    first, second = manager.seen
    assert first.query == {"status": "failed", "dead": "true", "limit": "200"}
    assert (second.query["cursor"], second.query["limit"]) == ("more", "50")
