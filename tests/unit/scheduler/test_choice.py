"""The rule by which a task gets its worker."""

from __future__ import annotations

import pytest

from corral.errors import SchedulingError
from corral.scheduler.events import WaitingTask, WorkerReady
from corral.scheduler.scheduler import schedule_task

TASK = WaitingTask("t", 1, "echo", 1)


def worker(
    name: str, busy: int = 0, slots: int = 1, serves: str = "echo"
) -> WorkerReady:
    return WorkerReady(name, "n", frozenset({serves}), slots, busy)


@pytest.mark.spec("D13", "C20")
def test_a_task_goes_to_the_least_loaded_worker_that_serves_it() -> None:
    workers = [worker("a", 1, 2), worker("b", 1, 4), worker("c", 0, 1, "other")]
    assert schedule_task(TASK, workers) == workers[1]


@pytest.mark.spec("D13")
def test_no_free_worker_is_a_value_and_no_worker_at_all_is_an_error() -> None:
    assert schedule_task(TASK, [worker("a", 1)]) is None
    with pytest.raises(SchedulingError, match="no worker serves 'echo'"):
        schedule_task(TASK, [worker("c", serves="other")])
    with pytest.raises(SchedulingError):
        schedule_task(TASK, [])
