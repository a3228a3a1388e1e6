"""Several orders at a time in one runner process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from corral.wire.orders import AttemptOutcome, Item
from corral.worker.pool.runner_pool import RunnerPool
from corral.worker.pool.runner_process import RunnerSpec
from corral.worker.supervisor.batch import OrderBatch
from corral.worker.supervisor.execution import Execution
from corral.worker.supervisor.reports import Notes
from tests.unit.worker.conftest import SAMPLES, item, value
from tests.unit.worker.warm_runners import launch

HERE = "tests.unit.worker.lane_workers"
LIMIT_S = 60.0


class Lanes:
    """A pool of one class, and orders that run on it at the same time."""

    def __init__(self, worker_class: str, size: int, params: dict[str, Any]) -> None:
        self.pool = RunnerPool(
            RunnerSpec(worker_class, params, launch=launch), size, lambda: None
        )
        self.pool.start()
        self._threads = ThreadPoolExecutor(16)
        self._changed = threading.Condition()
        self.told = Notes()
        self.spoke: set[str] = set()

    def order(self, *items: Item, unload: tuple[str, ...] = ()) -> Order:
        return Order(self, OrderBatch(items, unload))

    def execute(self, batch: OrderBatch) -> Notes:
        lane = self.pool.acquire()
        try:
            self.pool.unload(batch.unload, besides=lane)
            return Execution(batch, lane, self._tell, overrun_s=LIMIT_S).run()
        finally:
            self.pool.release(lane)

    def _tell(self, notes: Notes) -> None:
        with self._changed:
            self.told.merge(notes)
            self.spoke |= {output.task_id for output, _ in notes.output}
            self._changed.notify_all()
        notes.deliver()

    def await_word(self, task_id: str) -> None:
        """Until that task has emitted something: it runs."""
        with self._changed:
            assert self._changed.wait_for(lambda: task_id in self.spoke, LIMIT_S)

    def await_outcomes(self, count: int) -> None:
        with self._changed:
            told = self.told.outcomes
            assert self._changed.wait_for(lambda: len(told) >= count, LIMIT_S)

    def close(self) -> None:
        self.pool.kill()
        self.pool.join()
        self._threads.shutdown()


class Order:
    def __init__(self, lanes: Lanes, batch: OrderBatch) -> None:
        self.batch = batch
        self.ids = [each.task_id for each in batch.items]
        self._notes: Future[Notes] = lanes._threads.submit(lanes.execute, batch)

    @property
    def notes(self) -> Notes:
        return self._notes.result(LIMIT_S)

    @property
    def outcome(self) -> AttemptOutcome:
        [outcome] = self.notes.outcomes
        return outcome

    @property
    def is_done(self) -> bool:
        return self._notes.done()


class Make:
    def __init__(self) -> None:
        self.made: list[Lanes] = []

    def __call__(self, worker_class: str, size: int, **params: Any) -> Lanes:
        path = worker_class if ":" in worker_class else f"{HERE}:{worker_class}"
        self.made.append(Lanes(path, size, params))
        return self.made[-1]


@pytest.fixture
def lanes() -> Iterator[Make]:
    make = Make()
    yield make
    for each in make.made:
        each.close()


def do(what: str, **more: Any) -> Item:
    return item({"do": what}, **more)


def lines(notes: list[Notes], task_id: str) -> list[str]:
    return [
        text
        for told in notes
        for log in told.logs
        if log.task_id == task_id
        for _, _, text in msgspec.json.decode(log.lines)
        for text in text.split("\n")
    ]


def test_orders_of_a_class_that_shares_run_at_once_in_one_process(lanes: Make) -> None:
    worker = lanes("Shared", 3, meet=3)
    orders = [worker.order(do("meet")) for _ in range(3)]
    said = [value(order.outcome) for order in orders]
    assert [each["task"] for each in said] == [order.ids[0] for order in orders]
    assert [each["said"] for each in said] == [3, 3, 3]
    assert {each["pid"] for each in said} == set(worker.pool.pids)
    assert len(worker.pool.pids) == 1


def test_what_a_lane_prints_emits_and_tells_is_its_own_tasks(lanes: Make) -> None:
    worker = lanes("Shared", 3, meet=3)
    orders = [worker.order(do("meet")) for _ in range(3)]
    notes = [order.notes for order in orders]
    for order in orders:
        [task_id] = order.ids
        printed = lines([worker.told, *notes], task_id)
        assert printed == [f"{task_id} goes", f"{task_id} comes"]
        worker.await_word(task_id)
    pieces = {out.task_id: out.values for out, _ in worker.told.output}
    assert all(msgspec.json.decode(v[0]) == task for task, v in pieces.items())
    told = worker.told.progress | {k: v for n in notes for k, v in n.progress.items()}
    assert all(text == key[0] for key, (_, text) in told.items())


def test_a_class_that_does_not_share_has_a_process_for_each(lanes: Make) -> None:
    worker = lanes(f"{SAMPLES}:Doubler", 2)
    held = [worker.pool.acquire(), worker.pool.acquire()]
    assert len({lane.runner.pid for lane in held}) == 2
    for lane in held:
        worker.pool.release(lane)


def test_one_lane_is_enough_for_a_class_that_shares(lanes: Make) -> None:
    worker = lanes("Shared", 1)
    assert value(worker.order(do("meet")).outcome)["said"] == 1


@pytest.mark.parametrize("size", [1, 3])
def test_lanes_can_leave_work_to_the_main_thread(lanes: Make, size: int) -> None:
    worker = lanes("Shared", size)
    orders = [worker.order(do("compute")) for _ in range(size)]
    assert [value(order.outcome)["said"] for order in orders] == [True] * size


def test_cancel_in_one_lane_leaves_the_others_alone(lanes: Make) -> None:
    worker = lanes("Shared", 3)
    gone, stays = worker.order(do("await_cancel")), worker.order(do("await_open"))
    for order in (gone, stays):
        worker.await_word(order.ids[0])
    gone.batch.drop(gone.batch.items[0].key)
    assert gone.outcome.kind == "cancelled"
    assert not stays.is_done
    [pid] = worker.pool.pids
    worker.order(do("open"))
    assert value(stays.outcome) == {"task": stays.ids[0], "pid": pid, "said": True}


def test_a_task_that_must_be_killed_takes_the_other_lanes_along(lanes: Make) -> None:
    worker = lanes("Hasty", 2)
    other = worker.order(do("await_open"))
    worker.await_word(other.ids[0])
    late = worker.order(do("await_open", timeout_s=0.2))
    assert late.outcome.kind == "timed_out"
    assert other.outcome.kind == "lost"
    assert other.outcome.error is not None
    assert other.outcome.error.kind == "worker_died"
    assert value(worker.order(do("open")).outcome)["said"] is None


def test_every_lane_sees_the_death_of_its_process(lanes: Make) -> None:
    worker = lanes("Shared", 3)
    others = [worker.order(do("await_open")) for _ in range(2)]
    for order in others:
        worker.await_word(order.ids[0])
    worker.order(do("die"))
    assert [order.outcome.kind for order in others] == ["lost", "lost"]
    # One death, whatever it took along.
    assert worker.pool.failures == 0


def test_lanes_share_a_model_and_none_loses_it_while_it_runs(lanes: Make) -> None:
    worker = lanes("Shared", 3)
    first = worker.order(do("await_open", model="a"))
    worker.await_word(first.ids[0])
    assert value(worker.order(do("list", model="a")).outcome)["said"] == ["+a"]
    swap = worker.order(do("list", model="b"), unload=("a",))
    # On the third lane: what is asked to go waits for whoever uses it.
    assert value(worker.order(do("list")).outcome)["said"] == ["+a"]
    assert not swap.is_done
    worker.order(do("open"))
    assert value(first.outcome)["said"] is True
    assert value(swap.outcome)["said"] == ["+a", "-a", "+b"]
    [runner] = worker.pool.runners
    assert set(runner.models) == {"b"}


def test_batches_of_two_lanes_each_have_their_own_contexts(lanes: Make) -> None:
    worker = lanes("Gathering", 2, meet=2)
    orders = [worker.order(do("meet"), do("meet")) for _ in range(2)]
    for order in orders:
        assert [value(o) for o in order.notes.outcomes] == order.ids


def test_what_a_batch_yields_is_told_while_the_rest_of_it_runs(
    lanes: Make, tmp_path: Path
) -> None:
    worker, gate = lanes("Yielding", 1), tmp_path / "gate"
    os.mkfifo(gate)
    order = worker.order(item({"gate": str(gate)}), item({}), item({}))
    worker.await_outcomes(2)
    assert [o.task_id for o in worker.told.outcomes] == order.ids[:0:-1]
    assert not order.is_done
    gate.write_bytes(b"go")
    assert [o.task_id for o in order.notes.outcomes] in ([], [order.ids[0]])
    worker.await_outcomes(3 - len(order.notes.outcomes))
    told = [*worker.told.outcomes, *order.notes.outcomes]
    assert [value(outcome) for outcome in told] == [3, 3, 3]
    assert lines([worker.told, order.notes], order.ids[0])[-1] == "done with 0"


def test_what_a_batch_has_yielded_is_not_run_again_when_it_breaks(lanes: Make) -> None:
    worker = lanes("Yielding", 1)
    order = worker.order(item({}), item({"stop": True}), item({}))
    left = {outcome.task_id: outcome for outcome in order.notes.outcomes}
    worker.await_outcomes(3 - len(left))
    told = left | {outcome.task_id: outcome for outcome in worker.told.outcomes}
    first, broken, last = (told[task_id] for task_id in order.ids)
    # The last was done with the batch, the first alone after it had broken.
    assert (value(last), value(first)) == (3, 1)
    assert broken.error is not None
    assert "no more" in broken.error.message
