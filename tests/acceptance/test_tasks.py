"""The life of tasks on a real cluster: results, stops, retries, reasons."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from corral.errors import Conflict, InvalidField, TaskFailed, UnknownTaskType
from tests.acceptance.cluster import ECHO, SLEEP, Cluster, took_s, typical_s, until

WORKERS = "tests.acceptance.own_workers"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One of its own: here workers are all kept busy, and what runs is counted."""
    started = Cluster.start(tmp_path_factory.mktemp("tasks"), [ECHO, f"{SLEEP}x2"])
    try:
        started.serving("echo")
        started.serving("sleep")
        yield started
    finally:
        started.stop()


def running(cluster: Cluster, task_id: str) -> None:
    client = cluster.client
    until("it runs", lambda: client.get_task(task_id).state == "running")


@pytest.mark.spec("C5")
def test_a_task_from_the_command_line_prints_its_bare_result(shared: Cluster) -> None:
    done = shared.corral("run", "echo", '{"message":"hi"}')
    assert (done.code, done.out) == (0, '{"echoed": "hi"}\n')


def test_ten_thousand_tasks_in_bulk_all_complete(shared: Cluster) -> None:
    client = shared.client
    ids = client.submit_many([("echo", {"message": str(i)}) for i in range(10_000)])
    done = client.wait_many(ids, timeout=100)
    assert [t.result for t in done] == [{"echoed": str(i)} for i in range(10_000)]


def test_cancelling_a_running_task_frees_its_runner_within_two_seconds(
    shared: Cluster,
) -> None:
    client = shared.client

    def seconds() -> float:
        stuck = [client.submit("sleep", {"hang": True}).task_id for _ in range(2)]
        for task_id in stuck:
            running(shared, task_id)
        begun = time.monotonic()
        for task_id in stuck:
            client.cancel(task_id)
        assert client.run("sleep", {"seconds": 0}) == {"slept": 0.0}
        took = time.monotonic() - begun
        assert [client.wait(t).status for t in stuck] == ["cancelled"] * 2
        return took

    assert typical_s(seconds) < 2.0


def test_all_that_match_are_cancelled_and_run_again(shared: Cluster) -> None:
    herds = ("stray", "stray", "stray", "own")
    *tasks, other = (
        shared.client.submit("echo", {}, labels={"herd": herd}, run_after=3600)
        for herd in herds
    )
    told = shared.corral("cancel", "--label", "herd=stray", "--type", "echo")
    assert (told.code, told.out) == (0, "cancelled 3 tasks\n")
    assert {shared.client.get_task(t).status for t in tasks} == {"cancelled"}
    assert shared.client.get_task(other).status == "queued"
    again = shared.client.requeue_tasks(label="herd:stray", status="cancelled")
    assert (again.done, again.refused) == (3, 0)
    shared.client.cancel_tasks(label="herd:stray")
    shared.client.cancel(other)


def test_cancelling_an_ended_task_is_refused(shared: Cluster) -> None:
    task_id = shared.client.submit("echo", {"message": "x"}).task_id
    shared.client.wait(task_id)
    with pytest.raises(Conflict):
        shared.client.cancel(task_id)
    told = shared.corral("cancel", task_id)
    assert told.code == 1
    assert len(told.err.strip().splitlines()) == 1


def test_a_task_over_its_timeout_ends_as_timed_out_within_two_seconds(
    shared: Cluster,
) -> None:

    def run_out_of_time() -> None:
        task = shared.client.submit("sleep", {"hang": True}, timeout=1.0)
        assert shared.client.wait(task.task_id).status == "timed_out"

    assert typical_s(lambda: took_s(run_out_of_time)) < 3.0
    assert shared.client.run("sleep", {"seconds": 0}) == {"slept": 0.0}


def test_a_failing_task_keeps_message_traceback_and_every_attempt(
    shared: Cluster,
) -> None:
    task = shared.client.submit("sleep", {"fail": "no such luck"}, retries=1)
    ended = shared.client.wait(task.task_id)
    assert ended.status == "failed"
    detail = shared.client.get_task(task.task_id)
    assert detail.error is not None
    assert "no such luck" in detail.error.message
    assert "RuntimeError" in (detail.error.traceback or "")
    assert [a.outcome for a in detail.attempts] == ["failed", "failed"]
    assert detail.dead_letter == "failed"
    with pytest.raises(TaskFailed):
        shared.client.result(task.task_id)


def test_a_task_that_kills_its_runner_three_times_is_poison(shared: Cluster) -> None:
    task = shared.client.submit("sleep", {"seconds": 0.15, "exit": 3})
    ended = shared.client.wait(task.task_id, timeout=60)
    detail = shared.client.get_task(task.task_id)
    assert (ended.status, detail.dead_letter, detail.losses) == ("failed", "poison", 3)
    assert shared.client.run("sleep", {"seconds": 0}) == {"slept": 0.0}


def test_a_task_reads_the_outputs_of_those_it_depends_on(shared: Cluster) -> None:
    client = shared.client
    launched = client.launch_worker(f"{WORKERS}:JoinWorker", job_types=["join-outputs"])
    first = client.submit("echo", {"message": "one"}).task_id
    second = client.submit("sleep", {"seconds": 0.3}).task_id
    last = client.submit("join-outputs", {}, depends_on=[first, second]).task_id
    try:
        told = client.result(last, timeout=60)
    finally:
        client.stop_worker(launched[0].worker_id)
    assert told == {first: {"echoed": "one"}, second: {"slept": 0.3}}


def test_a_failed_dependency_fails_the_task_with_the_reason(shared: Cluster) -> None:
    bad = shared.client.submit("sleep", {"seconds": 0.2, "fail": "x"}).task_id
    after = shared.client.submit("echo", {"message": "y"}, depends_on=[bad]).task_id
    ended = shared.client.wait(after)
    assert ended.status == "failed"
    assert ended.error is not None
    assert ended.error.kind == "dependency_failed"


def test_a_task_without_a_worker_says_why_it_waits(shared: Cluster) -> None:
    shared.client.register_job_type("orphan")
    task_id = shared.client.submit("orphan", {}).task_id
    told = shared.corral("task", task_id)
    assert told.code == 0
    assert "no worker serves 'orphan'" in told.out
    detail = json.loads(shared.corral("task", task_id, "--json").out)
    assert detail["waiting"]["reason"] == "no_worker"
    shared.client.cancel(task_id)


def test_a_class_that_does_not_import_shows_as_error_and_its_tasks_say_why(
    shared: Cluster,
) -> None:
    client = shared.client
    worker = client.launch_worker("no.such.module:Worker", job_types=["broken"])[0]
    task_id = client.submit("broken", {}).task_id
    until(
        "the worker shows its error",
        lambda: client.worker(worker.worker_id).status == "error",
    )
    assert "no.such" in (client.worker(worker.worker_id).error or "")
    waiting = client.get_task(task_id).waiting
    assert waiting is not None
    assert waiting.reason == "worker_error"
    assert "no.such" in waiting.message
    client.cancel(task_id)
    client.stop_worker(worker.worker_id)


def test_one_bad_task_among_a_hundred_good_ones_is_the_only_one_refused(
    shared: Cluster,
) -> None:
    good = [
        {"task_type": "echo", "parameters": {"message": f"{i}"}} for i in range(100)
    ]
    text = json.dumps(good)[:-1]
    for bad in ('"\\u0000"', '"\\ud800"', "NaN", "1e400000"):
        row = '{"task_type": "echo", "parameters": {"message": ' + bad + "}}"
        body = f'{{"tasks": {text}, {row}]}}'
        ids = post_batch(shared, body)
        assert None not in ids[:100]
        done = shared.client.wait_many([t for t in ids if t], timeout=60)
        assert {t.status for t in done[:100]} == {"completed"}


def post_batch(cluster: Cluster, body: str) -> list[str | None]:
    import httpx

    key = (cluster.home / "admin.key").read_text().strip()
    answer = httpx.post(
        f"{cluster.url}/tasks/batch",
        content=body.encode(),
        headers={"Authorization": f"Bearer {key}"},
    )
    assert answer.status_code == 201
    ids: list[str | None] = answer.json()["task_ids"]
    return ids


def test_an_unknown_task_type_is_refused_with_what_is_known(shared: Cluster) -> None:
    with pytest.raises(UnknownTaskType, match="echo"):
        shared.client.submit("nonsense", {})
    with pytest.raises(InvalidField):
        shared.client.submit("echo", {}, depends_on=["not-there"])


@pytest.mark.spec("C9")
def test_celery_inspect_answers_while_an_order_runs(shared: Cluster) -> None:
    task_id = shared.client.submit("sleep", {"hang": True}).task_id
    running(shared, task_id)
    told = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "corral.engine", "inspect", "active",
         "--json", "--timeout", "5"],
        env=shared.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    active = [order for orders in json.loads(told.stdout).values() for order in orders]
    assert [order["name"] for order in active] == ["corral.order"]
    shared.client.cancel(task_id)


def test_what_a_task_prints_can_be_read_afterwards(shared: Cluster) -> None:
    client = shared.client
    worker = client.launch_worker(f"{WORKERS}:TalkWorker", job_types=["talk"])[0]
    task_id = client.submit("talk", {"say": "good morning"}).task_id
    client.wait(task_id, timeout=60)
    told = shared.corral("logs", task_id)
    client.stop_worker(worker.worker_id)
    assert told.code == 0
    assert "good morning" in told.out


def test_dead_letters_are_listed_shown_run_again_and_discarded(
    shared: Cluster,
) -> None:
    task_id = shared.client.submit("sleep", {"fail": "dead end"}).task_id
    shared.client.wait(task_id)
    listed = json.loads(shared.corral("dlq", "list", "--json").out)
    assert task_id in {task["task_id"] for task in listed}
    shown = shared.corral("dlq", "show", task_id)
    assert "dead end" in shown.out
    assert "RuntimeError" in shown.out
    assert shared.corral("dlq", "requeue", task_id).code == 0
    shared.client.wait(task_id)
    assert shared.client.get_task(task_id).run == 2
    assert shared.corral("dlq", "discard", task_id).code == 0
    again = shared.corral("dlq", "discard", task_id)
    assert (again.code, len(again.err.strip().splitlines())) == (1, 1)


@pytest.mark.spec("C14", "C11")
def test_a_worker_loads_the_model_a_task_names_and_keeps_it(shared: Cluster) -> None:
    client = shared.client
    worker = client.launch_worker(f"{WORKERS}:ModelWorker", job_types=["infer"])[0]
    try:
        first = client.run("infer", {"x": 2}, model_name="double", wait_timeout=60)
        again = client.run("infer", {"x": 3}, model_name="double", wait_timeout=60)
    finally:
        client.stop_worker(worker.worker_id)
    assert first == {"y": 4, "model": "double", "loads": 1}
    assert again == {"y": 6, "model": "double", "loads": 1}
