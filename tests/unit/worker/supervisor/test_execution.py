from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from corral.wire.orders import AttemptOutcome
from corral.worker.supervisor.batch import OrderBatch
from corral.worker.supervisor.execution import OVERRUN_S, Execution
from corral.worker.supervisor.reports import Notes
from tests.unit.worker.conftest import Bench, item, value

MakeBench = Callable[..., Bench]
SLEEPER = "corral.worker.builtin:SleepWorker"


def nap(seconds: float) -> dict[str, float]:
    return {"seconds": seconds}


def left(outcome: AttemptOutcome) -> Any:
    """What an attempt that did not complete has to show."""
    assert isinstance(outcome.result, msgspec.Raw)
    return msgspec.json.decode(outcome.result)


def on_started(worker: Bench, act: Callable[[], None]) -> None:
    """Call `act` once the execution says that a task has started."""

    def look(notes: Notes) -> None:
        if notes.started:
            act()

    worker.on_tell = look


def test_task_over_its_timeout_is_killed_and_the_rest_goes_back(
    bench: MakeBench,
) -> None:
    worker = bench(SLEEPER)
    first, late, rest = item(nap(0)), item({"hang": True}, timeout_s=0.2), item(nap(0))
    outcomes = worker.run(first, late, rest)
    assert [o.kind for o in outcomes] == ["completed", "timed_out", "returned"]
    assert outcomes[1].error is not None
    assert outcomes[1].error.kind == "timeout"
    assert "0.2 s" in outcomes[1].error.message
    assert 0.2 <= outcomes[1].duration_s < 30


def test_timeout_counts_from_the_start_of_its_own_task(bench: MakeBench) -> None:
    worker = bench(SLEEPER)
    outcomes = worker.run(*(item(nap(0.25), timeout_s=2.5) for _ in range(12)))
    assert [o.kind for o in outcomes] == ["completed"] * 12


@pytest.mark.parametrize("which", ["Hog", "Deaf"])
def test_code_that_cannot_be_interrupted_is_still_timed_out(
    bench: MakeBench, which: str
) -> None:
    worker = bench(which)
    [outcome] = worker.run(item(None, timeout_s=0.2))
    assert outcome.kind == "timed_out"
    assert outcome.duration_s < 30


@pytest.mark.parametrize("how", [{"exit": 3}, {"exit": 0}])
def test_task_that_ends_its_runner_is_lost_and_the_worker_serves_again(
    bench: MakeBench, how: dict[str, int]
) -> None:
    worker = bench(SLEEPER)
    outcomes = worker.run(item(nap(0.02)), item(how), item(nap(0)))
    assert [o.kind for o in outcomes] == ["completed", "lost", "returned"]
    assert outcomes[1].error is not None
    assert outcomes[1].error.kind == "worker_died"
    assert f"exited with code {how['exit']}" in outcomes[1].error.message
    assert worker.run(item(nap(0)))[0].kind == "completed"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_killed_runner_loses_only_the_task_it_was_at(
    bench: MakeBench, number: signal.Signals
) -> None:
    worker = bench(SLEEPER)
    on_started(worker, lambda: os.kill(worker.pool.pids[0], number))
    outcomes = worker.run(item({"hang": True}))
    assert [o.kind for o in outcomes] == ["lost"]
    assert outcomes[0].error is not None
    assert number.name in outcomes[0].error.message
    worker.on_tell = lambda _: None
    assert value(worker.run(item(nap(0)))[0]) == {"slept": 0.0}


def test_runner_that_dies_idle_is_replaced(bench: MakeBench) -> None:
    worker = bench(SLEEPER)
    worker.run(item(nap(0)))
    [pid] = worker.pool.pids
    os.kill(pid, signal.SIGKILL)
    while pid in worker.pool.pids:
        threading.Event().wait(0.01)
    assert worker.run(item(nap(0)))[0].kind == "completed"
    assert pid not in worker.pool.pids


def test_stopped_runner_is_killed_when_its_task_is_over_time(bench: MakeBench) -> None:
    worker = bench(SLEEPER)
    on_started(worker, lambda: os.kill(worker.pool.pids[0], signal.SIGSTOP))
    [outcome] = worker.run(item(nap(60), timeout_s=0.3))
    assert outcome.kind == "timed_out"


def test_children_of_a_killed_task_die_with_it(
    bench: MakeBench, tmp_path: Path
) -> None:
    note, task = tmp_path / "pid", item({"file": str(tmp_path / "pid")})
    batch = OrderBatch([task])

    def drop_later() -> None:
        while not (note.exists() and note.read_text()):
            threading.Event().wait(0.01)
        batch.drop(task.key)

    dropping = threading.Thread(target=drop_later, daemon=True)
    dropping.start()
    [outcome] = bench("Spawner").execute(batch).outcomes
    dropping.join()
    assert outcome.kind == "cancelled"
    pid = int(note.read_text())
    # The signal was sent; how soon the kernel has carried it out is not ours.
    # Where nobody collects orphans they stay as zombies, which is dead enough.
    ends = time.monotonic() + 60
    with contextlib.suppress(psutil.NoSuchProcess):
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < ends, "it lives on"
            threading.Event().wait(0.01)


def test_dropped_running_task_is_killed_and_the_runner_comes_back(
    bench: MakeBench,
) -> None:
    worker = bench(SLEEPER)
    task = item(nap(60))
    batch = OrderBatch([task])
    on_started(worker, lambda: batch.drop(task.key))
    worker.warm()
    began = time.monotonic()
    [outcome] = worker.execute(batch).outcomes
    assert outcome.kind == "cancelled"
    assert time.monotonic() - began < 30
    worker.on_tell = lambda _: None
    assert worker.run(item(nap(0)))[0].kind == "completed"


def test_task_that_looks_at_cancelled_keeps_its_runner(bench: MakeBench) -> None:
    worker = bench("Talker")
    task = item({})
    batch = OrderBatch([task])
    on_started(worker, lambda: batch.drop(task.key))
    [outcome] = worker.execute(batch).outcomes
    assert outcome.kind == "cancelled"
    pids = worker.pool.pids
    assert worker.execute(OrderBatch([])).outcomes == []
    assert worker.pool.pids == pids


def test_dropped_task_that_has_not_started_never_does(bench: MakeBench) -> None:
    worker = bench(SLEEPER)
    first, unwanted = item(nap(1.0)), item({"exit": 9})
    batch = OrderBatch([first, unwanted])
    on_started(worker, lambda: batch.drop(unwanted.key))
    outcomes = worker.execute(batch).outcomes + worker.handed_back
    assert {o.task_id: o.kind for o in outcomes} == {
        first.task_id: "completed",
        unwanted.task_id: "cancelled",
    }


def test_order_that_overruns_hands_back_what_has_not_started(
    bench: MakeBench, tmp_path: Path
) -> None:
    worker, told = bench("Gated"), tmp_path / "told"
    worker.overrun_s = OVERRUN_S

    def let_it_end(notes: Notes) -> None:
        if notes.outcomes:
            told.touch()

    worker.on_tell = let_it_end
    outcomes = worker.run(*(item({"until": str(told)}) for _ in range(4)))
    assert [o.kind for o in outcomes] == ["completed"]
    assert [o.kind for o in worker.handed_back] == ["returned"] * 3


def test_quick_order_is_never_handed_back(bench: MakeBench) -> None:
    worker = bench("corral.worker.builtin:EchoWorker")
    outcomes = worker.run(*(item({"message": n}) for n in range(200)))
    assert [value(o)["echoed"] for o in outcomes] == list(range(200))
    assert not worker.handed_back


def test_recalled_order_finishes_only_what_runs(bench: MakeBench) -> None:
    worker = bench(SLEEPER)
    batch = OrderBatch([item(nap(0.03)), item(nap(0.03)), item(nap(0.03))])
    batch.recall()
    outcomes = worker.execute(batch).outcomes + worker.handed_back
    assert sorted(o.kind for o in outcomes) == ["completed", "returned", "returned"]


def test_long_task_is_reported_as_started_with_progress_and_lines(
    bench: MakeBench,
) -> None:
    worker = bench("Talker")
    task = item({})
    batch = OrderBatch([task])
    seen = Notes()

    def look(notes: Notes) -> None:
        seen.merge(notes)
        if seen.started and seen.progress and seen.logs:
            batch.drop(task.key)

    worker.on_tell = look
    worker.warm()
    began = time.time()
    worker.execute(batch)
    [(task_id, attempt, at)] = seen.started
    assert (task_id, attempt) == task.key
    assert began - 0.1 <= at <= time.time()
    assert seen.progress == {task.key: (0.25, "quarter")}
    assert seen.logs[0].seq == 1
    lines = msgspec.json.decode(seen.logs[0].lines)
    assert [text for _, _, text in lines] == ["before the wait"]


def test_finished_results_do_not_wait_for_the_slow_task_behind_them(
    bench: MakeBench,
) -> None:
    worker = bench(SLEEPER)
    worker.run(item(nap(0)))
    on_started(worker, lambda: os.kill(worker.pool.pids[0], signal.SIGKILL))
    outcomes = worker.run(item(nap(0)), item(nap(0)), item({"hang": True}))
    assert [o.kind for o in outcomes] == ["completed", "completed", "lost"]


def test_batch_that_kills_its_runner_is_repeated_alone(bench: MakeBench) -> None:
    worker = bench("Batcher")
    batch = OrderBatch([item("a"), item("die"), item("c")])
    runner = worker.pool.acquire()
    execution = Execution(batch, runner, lambda _: None, overrun_s=30.0)
    assert execution.run().outcomes == []
    assert execution.retry_alone == batch.items
    runner = worker.pool.acquire()
    alone = Execution(batch, runner, lambda _: None, solo=True, overrun_s=30.0)
    assert [o.kind for o in alone.run().outcomes] == ["completed", "lost", "returned"]


def test_batch_taken_whole_times_out_those_that_are_late(bench: MakeBench) -> None:
    worker = bench("Batcher")
    outcomes = worker.run(item("long", timeout_s=0.2), item("patient", timeout_s=90))
    assert [o.kind for o in outcomes] == ["timed_out", "returned"]


def test_one_of_a_batch_that_stops_when_its_time_is_up_takes_no_other_along(
    bench: MakeBench,
) -> None:
    worker = bench("TidyBatch")
    worker.warm()
    (runner,) = worker.pool.runners
    outcomes = worker.run(item("late", timeout_s=0.2), item("patient", timeout_s=90))
    assert [o.kind for o in outcomes] == ["timed_out", "completed"]
    assert worker.pool.runners == [runner]


def test_a_batch_of_which_all_are_late_is_killed_after_its_grace(
    bench: MakeBench,
) -> None:
    worker = bench("TidyBatch")
    worker.warm()
    (runner,) = worker.pool.runners
    outcomes = worker.run(item("late", timeout_s=0.2), item("deaf", timeout_s=0.2))
    assert [o.kind for o in outcomes] == ["timed_out", "timed_out"]
    assert worker.pool.runners != [runner]


def test_batch_taken_whole_is_not_handed_back_however_long_it_takes(
    bench: MakeBench, tmp_path: Path
) -> None:
    worker, told = bench("Gatherer"), tmp_path / "told"
    worker.overrun_s = 0.0
    on_started(worker, told.touch)
    worker.warm()
    began = time.monotonic()
    outcomes = worker.run(*(item({"until": str(told)}) for _ in range(4)))
    took_s = time.monotonic() - began
    assert [value(o) for o in outcomes] == [4] * 4
    assert not worker.handed_back
    # Told in equal parts that add up to what the batch took.
    assert len({o.duration_s for o in outcomes}) == 1
    assert sum(o.duration_s for o in outcomes) <= took_s


def test_batch_that_fails_as_a_whole_is_sorted_out_where_it_is(
    bench: MakeBench, tmp_path: Path
) -> None:
    worker, told = bench("Gatherer"), tmp_path / "told"
    worker.overrun_s = 0.0
    on_started(worker, told.touch)
    good, bad = {"until": str(told)}, {"until": str(told), "spoils": True}
    outcomes = worker.run(item(good), item(bad), item(good))
    assert [o.kind for o in outcomes] == ["completed", "failed", "completed"]
    assert not worker.handed_back


def test_what_is_handed_back_has_never_run(bench: MakeBench, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    worker = bench("Scribbler", file=str(marks))
    worker.warm()
    luck = random.Random(5)
    for _ in range(25):
        marks.write_text("")
        worker.told.clear()
        batch = OrderBatch([item(n) for n in range(30)])
        timer = threading.Timer(luck.uniform(0, 0.03), batch.recall)
        timer.start()
        outcomes = worker.execute(batch).outcomes + worker.handed_back
        timer.join()
        fate = {o.task_id: o.kind for o in outcomes}
        assert len(outcomes) == len(fate) == 30
        ran = marks.read_text().split()
        done = [i for i in batch.items if fate[i.task_id] == "completed"]
        assert [bytes(i.payload).decode() for i in done] == ran
        assert set(fate.values()) <= {"completed", "returned"}


def test_a_task_out_of_time_may_clean_up_and_keep_what_it_has(bench: MakeBench) -> None:
    worker = bench("Tidy")
    worker.warm()
    [done] = worker.run(item({}, timeout_s=0.2))
    assert done.kind == "timed_out"
    assert done.error is not None
    assert done.error.kind == "timeout"
    assert left(done) == {"tidied": "timeout", "cancelled": True}


def test_a_task_that_does_not_use_its_grace_is_killed_after_it(
    bench: MakeBench,
) -> None:
    worker = bench("Hasty")
    worker.warm()
    began = time.monotonic()
    [done] = worker.run(item({"deaf": True}, timeout_s=0.2))
    assert 0.7 <= time.monotonic() - began < 30
    assert done.kind == "timed_out"


def test_a_cancelled_task_has_its_grace_too(bench: MakeBench) -> None:
    worker = bench("Tidy")
    worker.warm()
    batch = OrderBatch([item({})])
    on_started(worker, lambda: batch.drop(batch.items[0].key))
    [done] = worker.execute(batch).outcomes
    assert done.kind == "cancelled"
    # It ended by itself: the runner lives, and takes the next.
    [after] = worker.run(item({}, timeout_s=0.1))
    assert left(after) == {"tidied": "timeout", "cancelled": True}


def test_a_failure_keeps_its_output_and_its_kind(bench: MakeBench) -> None:
    worker = bench("Shows")
    shown, odd = worker.run(item({}), item({"odd": True}))
    for done in (shown, odd):
        assert done.kind == "failed"
        assert done.error is not None
        assert (done.error.kind, done.error.message) == ("exit", "no luck")
    assert left(shown) == {"left": 7}
    assert not odd.result
