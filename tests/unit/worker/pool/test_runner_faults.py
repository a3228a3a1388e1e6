"""What a worker counts against itself, for its agent's breaker to judge."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from corral.worker.pool.runner_pool import RunnerPool
from corral.worker.pool.runner_process import RunnerSpec
from tests.unit.worker.conftest import SAMPLES, Bench, item

MakeBench = Callable[..., Bench]


def counted(worker_class: str, failures: int) -> RunnerPool:
    """A pool of such runners, once it has counted so many failures."""
    changed = threading.Event()
    pool = RunnerPool(RunnerSpec(f"{SAMPLES}:{worker_class}", {}), 1, changed.set)
    pool.start()
    while pool.failures < failures:
        assert changed.wait(60)
        changed.clear()
    return pool


def test_every_start_that_fails_counts_and_says_why() -> None:
    pool = counted("DiesAtStart", 2)
    assert pool.fault == "the runner exited with code 41 while it was starting"
    assert pool.finished == 0
    pool.kill()
    pool.join()


def test_an_idle_runner_that_dies_counts() -> None:
    changed = threading.Event()
    pool = RunnerPool(RunnerSpec(f"{SAMPLES}:Doubler", {}), 1, changed.set)
    pool.start()
    while not pool.is_ready:
        assert changed.wait(60)
        changed.clear()
    os.kill(pool.pids[0], signal.SIGKILL)
    while not pool.failures:
        assert changed.wait(60)
        changed.clear()
    assert "the idle runner was killed" in (pool.fault or "")
    pool.kill()
    pool.join()


def test_runners_that_fail_side_by_side_count_as_one_round() -> None:
    pool = RunnerPool(RunnerSpec(f"{SAMPLES}:Doubler", {}), 3, lambda: None)
    for in_a_row in (1, 1, 1, 2, 2, 2, 3):
        pool._tally(in_a_row, "no module")
    assert (pool.failures, pool.fault) == (3, "no module")


def test_a_task_that_kills_its_runner_counts_only_when_nothing_was_finished_between(
    bench: MakeBench,
) -> None:
    worker = bench("Batcher")
    worker.run(item("die"))
    worker.run(item("good"))
    worker.run(item("die"))
    assert worker.pool.failures == 0
    worker.run(item("die"))
    worker.warm()
    assert worker.pool.failures == 1
    assert worker.pool.fault == "the runner exited with code 9 under a task"


def test_a_task_that_raises_or_runs_too_long_counts_for_nothing(
    bench: MakeBench,
) -> None:
    worker = bench("Deaf")
    for _ in range(3):
        [outcome] = worker.run(item(None, timeout_s=0.2))
        assert outcome.kind == "timed_out"
    failing = bench("Raises")
    for _ in range(3):
        [outcome] = failing.run(item("bread"))
        assert outcome.kind == "failed"
    worker.warm()
    assert (worker.pool.failures, failing.pool.failures) == (0, 0)
    assert failing.pool.finished == 3
