from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from corral.errors import WorkerError
from corral.worker.pool.bundle_pool import BundlePool
from corral.worker.pool.runner_pool import RunnerPool
from corral.worker.pool.runner_process import RunnerSpec
from tests.unit.worker.conftest import SAMPLES, Bench, item, value

MakeBench = Callable[..., Bench]


@pytest.mark.parametrize(
    ("worker_class", "words"),
    [
        ("tests.unit.worker.broken_import:Any", "a_package_nobody_has"),
        (f"{SAMPLES}:BrokenInit", "RuntimeError: no licence found"),
        (f"{SAMPLES}:BrokenStart", "OSError: weights are not there"),
        (f"{SAMPLES}:DiesAtStart", "exited with code 41 while it was starting"),
        (f"{SAMPLES}:Nothing", "none of run, _run, run_batch"),
    ],
)
def test_class_that_cannot_start_says_why_to_everyone_who_waits(
    bench: MakeBench, worker_class: str, words: str
) -> None:
    pool = bench(worker_class).pool
    with pytest.raises(WorkerError, match=words):
        pool.acquire()
    assert not pool.is_ready
    assert words in (pool.error or "")


def test_class_that_can_start_later_is_tried_again(
    bench: MakeBench, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    changed = threading.Event()
    spec = RunnerSpec(f"{SAMPLES}:Fixable", {"file": str(note)})
    pool = RunnerPool(spec, 1, changed.set)
    pool.start()
    with pytest.raises(WorkerError, match="FileNotFoundError"):
        pool.acquire()
    note.write_text("now it works")
    while not pool.is_ready:
        assert changed.wait(60)
        changed.clear()
    assert pool.error is None
    pool.release(pool.acquire())
    pool.kill()
    pool.join()


def test_runners_are_handed_out_in_the_order_of_asking(bench: MakeBench) -> None:
    pool = bench("Doubler").pool
    held = pool.acquire()
    served: list[int] = []
    threads = []

    def ask(number: int) -> None:
        runner = pool.acquire()
        served.append(number)
        pool.release(runner)

    for number in range(5):
        thread = threading.Thread(target=ask, args=(number,))
        threads.append(thread)
        thread.start()
        while len(pool._line) <= number:
            threading.Event().wait(0.001)
    pool.release(held)
    for thread in threads:
        thread.join(60)
    assert served == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("bundles", [False, True])
def test_who_waits_behind_a_long_task_may_lose_patience(
    bench: MakeBench, bundles: bool
) -> None:
    pool = bench("Doubler").pool
    if bundles:
        spec = RunnerSpec(f"{SAMPLES}:Doubler", {})
        pool = BundlePool(spec, 1, lambda: None, lambda bundle: pytest.fail("none"))
        pool.start()
    held = pool.acquire(patience_s=0.0)
    with pytest.raises(WorkerError, match="busy for longer than was thought"):
        pool.acquire(patience_s=0.1)
    pool.release(held)
    pool.release(pool.acquire(patience_s=0.0))
    pool.kill()
    pool.join()


def test_several_runners_work_side_by_side() -> None:
    spec = RunnerSpec("corral.worker.builtin:SleepWorker", {})
    pool = RunnerPool(spec, 2, lambda: None)
    pool.start()
    first, second = pool.acquire().runner, pool.acquire().runner
    assert first.pid != second.pid
    assert pool.pids == sorted([first.pid, second.pid])
    pool.kill()
    pool.join()
    assert pool.pids == []


def test_closing_pool_refuses_those_who_wait(bench: MakeBench) -> None:
    worker = bench("Doubler")
    assert value(worker.run(item(1))[0]) == 2
    worker.pool.close()
    with pytest.raises(WorkerError, match="closing"):
        worker.pool.acquire()
