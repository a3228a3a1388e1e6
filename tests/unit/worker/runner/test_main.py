from __future__ import annotations

import os
from collections.abc import Callable

import msgspec
import pytest

from corral.worker.runner.capture import HEAD_LIMIT, LINE_LIMIT, TAIL_LIMIT
from corral.worker.supervisor.batch import OrderBatch
from corral.worker.supervisor.reports import Notes
from tests.unit.worker.conftest import Bench, item, value

MakeBench = Callable[..., Bench]


def all_told(worker: Bench, last: Notes) -> Notes:
    """What came early, as on a machine that is slow, and what came at the end."""
    told = Notes()
    for notes in (*worker.told, last):
        told.merge(notes)
    return told


def lines_of(notes: Notes, task_id: str) -> list[tuple[str, str]]:
    return [
        (stream, text)
        for log in notes.logs
        if log.task_id == task_id
        for _, stream, text in msgspec.json.decode(log.lines)
        for text in text.split("\n")
    ]


@pytest.mark.spec("E11")
def test_batch_runs_in_order_and_each_task_has_its_times(bench: MakeBench) -> None:
    outcomes = bench("Doubler").run(item(2), item("ab"), item([1]))
    assert [value(o) for o in outcomes] == [4, "abab", [1, 1]]
    started = [o.started_at for o in outcomes if o.started_at is not None]
    assert len(started) == 3
    assert started == sorted(started)
    assert all(0 <= o.duration_s < 1 for o in outcomes)


def test_one_failure_leaves_the_rest_of_the_batch_alone(bench: MakeBench) -> None:
    outcomes = bench("Doubler").run(item(1), item({}), item(3))
    assert [o.kind for o in outcomes] == ["completed", "failed", "completed"]


def test_parameters_and_start_come_before_the_first_task(bench: MakeBench) -> None:
    worker = bench("Parametrised", colour="red", size=3)
    [outcome] = worker.run(item(None))
    assert value(outcome) == {"params": {"colour": "red", "size": 3}, "started": True}


def test_class_that_derives_from_nothing_runs(bench: MakeBench) -> None:
    assert value(bench("Plain").run(item("as is"))[0]) == "as is"


def test_stray_output_never_reaches_the_frames(bench: MakeBench) -> None:
    worker = bench("Noisy")
    first, second = item({"n": 1}), item({"n": 2})
    notes = all_told(worker, worker.execute(OrderBatch([first, second])))
    assert [value(o) for o in notes.outcomes] == [1, 2]
    assert lines_of(notes, second.task_id) == [
        ("stdout", "to stdout 2"),
        ("stderr", "to stderr"),
        ("stdout", "raw bytes"),
        ("log", "by hand"),
        ("stdout", "no newline at the end"),
    ]


def test_output_beyond_the_limit_is_cut_with_a_mark(bench: MakeBench) -> None:
    worker = bench("Chatty")
    loud, quiet = item({"lines": 12000, "width": 999}), item({"lines": 1, "width": 3})
    notes = worker.execute(OrderBatch([loud, quiet]))
    assert value(notes.outcomes[0]) == 12000
    told = all_told(worker, notes)
    texts = [text for _, text in lines_of(told, loud.task_id)]
    assert sum(len(text) + 1 for text in texts) < HEAD_LIMIT + TAIL_LIMIT + 1000
    assert "[3350 lines, 3350000 bytes left out]" in texts
    assert [text for _, text in lines_of(told, quiet.task_id)] == ["xxx"]
    assert [p.seq for p in told.logs if p.task_id == loud.task_id][-1] == len(texts)


def test_endless_line_is_cut(bench: MakeBench) -> None:
    task = item({"lines": 1, "width": 40_000})
    worker = bench("Chatty")
    notes = all_told(worker, worker.execute(OrderBatch([task])))
    [(_, text)] = lines_of(notes, task.task_id)
    assert (
        text
        == f"{'x' * LINE_LIMIT} [{40_000 - LINE_LIMIT} bytes of this line left out]"
    )


def test_large_result_arrives_whole(bench: MakeBench) -> None:
    outcomes = bench("Doubler").run(item("x" * 4_000_000), item("y" * 4_000_000))
    assert [len(value(o)) for o in outcomes] == [8_000_000, 8_000_000]


def test_system_exit_fails_the_task_and_the_runner_lives(bench: MakeBench) -> None:
    worker = bench("Raises")
    [before] = worker.run(item("bread"))
    pids = worker.pool.pids
    [outcome] = worker.run(item("exit"))
    assert (before.kind, outcome.kind) == ("failed", "failed")
    assert worker.run(item("bread"))[0].kind == "failed"
    assert worker.pool.pids == pids


def test_context_shows_the_task_and_what_it_depends_on(bench: MakeBench) -> None:
    task = item(
        None,
        task_id="me",
        inputs=msgspec.Raw(b'{"a": {"x": [1]}, "b": null}'),
        labels={"team": "blue"},
    )
    [outcome, plain] = bench("Curious").run(task, item(None, task_id="you"))
    inputs = {"a": {"x": [1]}, "b": None}
    assert value(outcome) == ["me", 1, "test", inputs, {"team": "blue"}]
    assert value(plain) == ["you", 1, "test", {}, {}]


@pytest.mark.spec("C60")
def test_run_batch_gets_all_payloads_at_once(bench: MakeBench) -> None:
    worker = bench("Batcher")
    assert [value(o) for o in worker.run(item("a"), item("b"))] == [["a", 2], ["b", 2]]
    assert value(worker.run(item("c"))[0]) == ["c", 1]


def test_failing_run_batch_is_repeated_one_by_one(bench: MakeBench) -> None:
    outcomes = bench("Batcher").run(item("a"), item("bad"), item("c"))
    assert [o.kind for o in outcomes] == ["completed", "failed", "completed"]
    assert value(outcomes[0]) == ["a", 1]
    assert outcomes[1].error is not None
    assert outcomes[1].error.message == "ValueError: bad one"


def test_run_batch_may_fail_one_task_by_value(bench: MakeBench) -> None:
    outcomes = bench("Batcher").run(item("a"), item("told"))
    assert value(outcomes[0]) == ["a", 2]
    assert outcomes[1].error is not None
    assert outcomes[1].error.message == "ValueError: told by value"


def test_run_batch_with_the_wrong_number_of_answers_is_not_trusted(
    bench: MakeBench,
) -> None:
    outcomes = bench("Batcher").run(item("a"), item("short"))
    assert [o.kind for o in outcomes] == ["completed", "failed"]
    assert outcomes[1].error is not None
    assert "one output per payload" in outcomes[1].error.message


def test_user_code_does_not_inherit_the_clusters_secrets(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORRAL_API_KEY", "secret")
    monkeypatch.setenv("CORRAL_REDIS_URL", "redis://:secret@nowhere")
    monkeypatch.setenv("CORRAL_HOME", os.curdir)
    names = value(bench("Secretive").run(item(None))[0])
    assert "CORRAL_HOME" in names
    assert not {"CORRAL_API_KEY", "CORRAL_REDIS_URL"} & set(names)
