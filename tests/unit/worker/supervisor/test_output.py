"""What user code emits: numbered, in order, at once, and gone on with after a death."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from corral.wire.orders import EmittedOutput
from corral.worker.backpressure import Backpressure
from corral.worker.protocol import ChunksFrame, Frame
from corral.worker.runner.emit import BURST, OutputSender
from corral.worker.supervisor.batch import OrderBatch
from corral.worker.supervisor.execution import Execution
from corral.worker.supervisor.reports import LOG_BYTES, Notes
from tests.unit.worker.conftest import Bench, item, value

MakeBench = Callable[..., Bench]
Numbered = list[tuple[int, Any]]


def raw(told: Any) -> Raw:
    return Raw(msgspec.json.encode(told))


def told_by(worker: Bench, last: Notes, task_id: str) -> Numbered:
    """Every piece of a task that was told, with its number, as it came."""
    notes = [*worker.told, last]
    return [
        (piece.first + i, msgspec.json.decode(each))
        for each_notes in notes
        for piece, _ in each_notes.output
        if piece.task_id == task_id
        for i, each in enumerate(piece.values)
    ]


def counted(words: list[Any], first: int = 1) -> Numbered:
    return list(enumerate(words, first))


def test_pieces_are_told_before_the_task_has_ended(bench: MakeBench) -> None:
    worker = bench("Teller")
    seen = threading.Event()
    worker.on_tell = lambda notes: seen.set() if notes.output else None
    words: list[Any] = ["a", {"b": [1, None]}, "ü\n"]
    task = item({"words": words})
    last = worker.execute(OrderBatch([task]))
    assert seen.is_set()
    assert not last.output, "they never wait for the end"
    assert told_by(worker, last, task.task_id) == counted(
        ["a", {"b": [1, None]}, "ü\n"]
    )
    assert value(last.outcomes[0])["begun"] == []


def test_a_flood_comes_whole_and_in_order(bench: MakeBench) -> None:
    worker = bench("Teller")
    first, second = (item({"words": [f"{t}{n}" for n in range(5000)]}) for t in "xy")
    last = worker.execute(OrderBatch([first, second]))
    for task, letter in ((first, "x"), (second, "y")):
        words = [f"{letter}{n}" for n in range(5000)]
        assert told_by(worker, last, task.task_id) == counted(words)


@pytest.mark.parametrize("goes_on", [True, False])
def test_an_attempt_may_go_on_or_begin_again(bench: MakeBench, goes_on: bool) -> None:
    worker = bench("Teller")
    told = {"words": ["a", "b", "c"], "goes_on": goes_on}
    task = item(told, emitted=raw(["a", "b"]))
    last = worker.execute(OrderBatch([task]))
    expected = counted(["c"], 3) if goes_on else counted(["a", "b", "c"])
    assert told_by(worker, last, task.task_id) == expected
    assert value(last.outcomes[0])["begun"] == (["a", "b"] if goes_on else [])


def test_what_was_emitted_before_a_death_is_told(bench: MakeBench) -> None:
    worker = bench("Teller")
    task = item({"words": ["a", "b", "c"], "die_at": 2})
    last = worker.execute(OrderBatch([task]))
    assert last.outcomes[0].kind == "lost"
    assert told_by(worker, last, task.task_id) == counted(["a", "b"])


def test_what_json_has_no_form_for_fails_the_task_that_emits_it(
    bench: MakeBench,
) -> None:
    worker = bench("tests.unit.worker.supervisor.test_output:Careless")
    strange, large = worker.run(item("strange"), item("large"))
    for outcome in (strange, large):
        assert outcome.error is not None
        assert outcome.error.kind == "bad_result"
        assert "cannot be emitted" in outcome.error.message


class Careless:
    context: Any

    def run(self, payload: str) -> None:
        self.context.emit("x" * (1 << 20) if payload == "large" else object())


def test_all_of_a_batch_are_told_apart(bench: MakeBench) -> None:
    worker = bench("Choir")
    tasks = [item({"words": [f"{t}1", f"{t}2"]}) for t in "ab"]
    last = worker.execute(OrderBatch(tasks))
    for task, letter in zip(tasks, "ab", strict=True):
        found = told_by(worker, last, task.task_id)
        assert found == counted([f"{letter}1", f"{letter}2"])


def test_a_batch_that_failed_as_a_whole_begins_again(bench: MakeBench) -> None:
    worker = bench("Choir")
    tasks = [item({"words": ["a", "b"], "fail_at": 1}), item({"words": ["c", "d"]})]
    last = worker.execute(OrderBatch(tasks))
    assert told_by(worker, last, tasks[0].task_id) == counted(["a"]) + counted(
        ["a", "b"]
    )


def test_a_batch_that_died_as_a_whole_goes_on_one_by_one(bench: MakeBench) -> None:
    worker = bench("Choir")
    worker.warm()
    runner = worker.pool.acquire()
    tasks = [item({"words": ["a", "b"], "die_at": 1}), item({"words": ["c", "d"]})]
    batch = OrderBatch(tasks)
    try:
        execution = Execution(batch, runner, worker._tell, overrun_s=30.0)
        execution.run()
    finally:
        worker.pool.release(runner)
    again = {each.task_id: each.emitted for each in execution.retry_alone}
    assert again == {tasks[0].task_id: raw(["a"]), tasks[1].task_id: raw(["c"])}
    last = worker.execute(OrderBatch(execution.retry_alone[1:]))
    assert value(last.outcomes[0]) == ["c"]
    assert told_by(worker, last, tasks[1].task_id) == counted(["c", "d"])


class Wire:
    """Where frames go."""

    def __init__(self) -> None:
        self.sent: list[ChunksFrame] = []

    def send(self, frame: Frame) -> None:
        assert isinstance(frame, ChunksFrame)
        self.sent.append(frame)


def test_few_pieces_leave_at_once_and_many_together() -> None:
    wire = Wire()
    outflow = OutputSender(wire.send)
    for number in range(BURST + 100):
        outflow.emit(("t", 1), raw(number))
    assert [len(chunks.values) for chunks in wire.sent] == [1] * BURST
    outflow.tick()
    assert [len(chunks.values) for chunks in wire.sent[BURST:]] == [100]
    assert wire.sent[BURST].first == BURST + 1
    outflow.emit(("t", 1), raw("soon"))
    assert wire.sent[-1].first == BURST + 101
    outflow.go_on(("t", 1), 7)
    outflow.emit(("t", 1), raw("not from there"))
    assert wire.sent[-1].first == BURST + 102
    outflow.restart(("t", 1))
    outflow.emit(("t", 1), raw("again"))
    assert wire.sent[-1].first == 1


def test_notes_join_what_follows_and_keep_reports_small() -> None:
    gate = Backpressure(1 << 30)
    notes = Notes()
    for number in range(1, 4):
        piece = EmittedOutput("t", 1, number, [raw(number)])
        notes.merge(Notes(output=[(piece, gate)]))
    other = EmittedOutput("u", 1, 1, [raw("x" * (LOG_BYTES + 1))])
    notes.merge(Notes(output=[(other, gate)]))
    assert [(p.task_id, len(p.values)) for p, _ in notes.output] == [("t", 3), ("u", 1)]
    part = notes.split()
    assert part is not None
    assert [p.task_id for p, _ in part.output] == ["t"]
    assert notes.split() is None
    assert notes.take_lines({("u", 1)}).output == [(other, gate)]
    assert not notes
