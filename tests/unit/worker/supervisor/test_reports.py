from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from corral.core.nodes.worker import WorkerState
from corral.errors import WorkerError
from corral.wire.orders import AttemptOutcome, EmittedOutput, LogLines
from corral.worker.backpressure import Backpressure
from corral.worker.manager_link import ManagerLink
from corral.worker.supervisor.reports import LOG_BYTES, Notes, Reporter
from tests.unit.worker.standin_manager import WORKER, StandInManager, make_order


class Desk:
    """Where the reporter's answers arrive."""

    def __init__(self) -> None:
        self.known: list[str] = []
        self.drops: list[tuple[str, int]] = []
        self.fenced: list[str] = []

    def on_answer(
        self, outcomes: list[AttemptOutcome], drops: list[tuple[str, int]]
    ) -> None:
        self.known += [o.task_id for o in outcomes]
        self.drops += drops


@pytest.fixture
def manager() -> Iterator[StandInManager]:
    made = StandInManager()
    yield made
    made.close()


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def reporter(manager: StandInManager, desk: Desk) -> Iterator[Reporter]:
    link = ManagerLink(manager.url, "a-key")
    made = Reporter(link, WORKER, desk.on_answer, desk.fenced.append)
    made.register(pid=1, epoch=4)
    yield made
    made.stop()
    made.join()
    link.close()


def done(task_id: str, result: Any = None) -> AttemptOutcome:
    raw = msgspec.Raw(msgspec.json.encode(result))
    return AttemptOutcome(task_id, 1, "completed", raw, started_at=1.5, duration_s=0.25)


def piece(
    task_id: str, seq: int, *lines: tuple[float, str, str], attempt: int = 1
) -> LogLines:
    raw = msgspec.Raw(msgspec.json.encode(lines))
    return LogLines(task_id, attempt, seq, raw)


def finish(
    reporter: Reporter, *outcomes: AttemptOutcome, wants_order: bool = False
) -> Any:
    notes = Notes(outcomes=list(outcomes))
    return reporter.finish(notes, wants_order=wants_order, error=None)


def test_report_has_the_shape_of_the_wire(
    reporter: Reporter, manager: StandInManager, desk: Desk
) -> None:
    notes = Notes(
        outcomes=[done("a", {"x": 1})],
        started=[("b", 2, 1.0)],
        progress={("b", 2): (0.5, "half")},
    )
    notes.note_lines(
        piece("b", 1, (1.0, "stdout", "line"), attempt=2), Backpressure(1000)
    )
    manager.next_orders.append(make_order())
    manager.drops = [["c", 3]]
    answer = reporter.finish(notes, wants_order=True, error="broken")
    assert manager.reports == [
        {
            "incarnation": "i-1",
            "report_id": "1",
            "outcomes": [
                {
                    "task_id": "a",
                    "attempt": 1,
                    "kind": "completed",
                    "result": {"x": 1},
                    "started_at": 1.5,
                    "duration_s": 0.25,
                }
            ],
            "started": [["b", 2, 1.0]],
            "progress": [["b", 2, 0.5, "half"]],
            "logs": [
                {
                    "task_id": "b",
                    "attempt": 2,
                    "seq": 1,
                    "lines": [[1.0, "stdout", "line"]],
                }
            ],
            "wants_order": True,
            "state": "error",
            "error": "broken",
        }
    ]
    assert answer.order == make_order()
    assert desk.known == ["a"]
    assert desk.drops == [("c", 3)]
    assert manager.registrations == [{"pid": 1, "epoch": 4}]
    assert set(manager.keys) == {"Bearer a-key"}


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_report_is_sent_again_until_the_manager_takes_it(
    reporter: Reporter, manager: StandInManager, status: int
) -> None:
    manager.statuses = [status, status]
    finish(reporter, done("a"))
    assert set(manager.outcomes()) == {("a", 1)}


def test_report_whose_answer_got_lost_is_repeated_under_its_number(
    reporter: Reporter, manager: StandInManager
) -> None:
    manager.next_orders.append(make_order())
    lose = iter([True])
    original = manager.answer

    def lossy(path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        status, answer = original(path, body)
        return (0, b"") if next(lose, False) else (status, answer)

    manager.answer = lossy  # type: ignore[method-assign]
    answer = finish(reporter, done("a"), wants_order=True)
    assert manager.repeats == 1
    assert len(manager.reports) == 1
    assert answer.order == make_order()


def test_results_wait_out_a_manager_that_is_away(desk: Desk) -> None:
    away = StandInManager()
    link = ManagerLink(away.url, "k")
    reporter = Reporter(link, WORKER, desk.on_answer, desk.fenced.append)
    reporter.register(1, 1)
    away.statuses = [503] * 3
    thread = threading.Thread(target=finish, args=(reporter, done("a")))
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert desk.known == ["a"]
    reporter.stop()
    reporter.join()
    link.close()
    away.close()


@pytest.mark.parametrize("status", [401, 403, 404, 409])
def test_manager_that_knows_another_incarnation_ends_the_reporting(
    reporter: Reporter, manager: StandInManager, desk: Desk, status: int
) -> None:
    manager.statuses = [status]
    with pytest.raises(WorkerError):
        finish(reporter, done("a"))
    assert len(desk.fenced) == 1
    assert desk.known == []


@pytest.mark.parametrize("status", [400, 413, 422])
def test_result_the_manager_refuses_fails_alone(
    reporter: Reporter, manager: StandInManager, desk: Desk, status: int
) -> None:
    def refuse(report: dict[str, Any]) -> int | None:
        bad = any(o.get("result") == "poison" for o in report["outcomes"])
        return status if bad else None

    manager.refuse = refuse
    manager.next_orders.append(make_order())
    results = [*range(5), "poison", *range(5)]
    outcomes = [done(f"t{n}", r) for n, r in enumerate(results)]
    answer = finish(reporter, *outcomes, wants_order=True)
    told = manager.outcomes()
    assert len(told) == 11
    assert told["t5", 1]["kind"] == "failed"
    assert "refused" in told["t5", 1]["error"]["message"]
    assert sum(o["kind"] == "completed" for o in told.values()) == 10
    assert sorted(desk.known) == sorted(o.task_id for o in outcomes)
    assert answer.order == make_order()


def test_large_results_travel_in_several_reports(
    reporter: Reporter, manager: StandInManager
) -> None:
    finish(reporter, *(done(f"t{n}", "x" * 3_000_000) for n in range(7)))
    assert len(manager.outcomes()) == 7
    sizes = [len(report["outcomes"]) for report in manager.reports]
    assert max(sizes) <= 3
    assert not any(report["wants_order"] for report in manager.reports)


def test_what_is_told_meanwhile_travels_together(
    reporter: Reporter, manager: StandInManager
) -> None:
    with manager.changed:  # the manager cannot answer while we hold this
        reporter.tell(Notes(outcomes=[done("first")]))
        reporter.tell_state(WorkerState.READY, None)
        for n in range(20):
            reporter.tell(Notes(outcomes=[done(f"t{n}")]))
    manager.wait_for(lambda: len(manager.outcomes()) == 21)
    assert len(manager.reports) <= 3
    assert [r["state"] for r in manager.reports if "state" in r] == ["ready"]


def test_bell_sends_an_empty_report_for_its_answer(
    reporter: Reporter, manager: StandInManager, desk: Desk
) -> None:
    manager.drops = [["x", 1]]
    reporter.ring()
    manager.wait_for(lambda: manager.reports)
    finish(reporter)
    assert manager.reports[0]["outcomes"] == []
    assert desk.drops[0] == ("x", 1)


def test_an_outcome_never_overtakes_the_lines_of_its_task(
    reporter: Reporter, manager: StandInManager
) -> None:
    """Told lines travel by a thread of their own, outcomes by another."""
    for n in range(1, 20):
        notes = Notes()
        notes.note_lines(piece("a", n, (1.0, "stdout", f"line {n}")), Backpressure(1))
        reporter.tell(notes)
    finish(reporter, done("a"))
    said = [
        log["seq"] if log else "outcome"
        for report in manager.reports
        for log in [*report["logs"], *(None for _ in report["outcomes"])]
    ]
    assert said == [*range(1, 20), "outcome"]


def test_an_outcome_never_overtakes_what_its_task_emitted(
    reporter: Reporter, manager: StandInManager
) -> None:
    gate = Backpressure(1 << 20)
    for n in range(1, 200):
        part = EmittedOutput("a", 1, n, [msgspec.Raw(b"%d" % n)])
        gate.enter(part.size)
        reporter.tell(Notes(output=[(part, gate)]))
    finish(reporter, done("a"))
    said: list[Any] = []
    for report in manager.reports:
        for part in report.get("output", ()):
            assert part["values"][0] == part["first"]
            said += part["values"]
        said += ["outcome" for _ in report["outcomes"]]
    assert said == [*range(1, 200), "outcome"]
    gate.enter(1 << 20)  # would wait for ever if something were still inside


def test_a_long_log_travels_in_many_reports_and_opens_its_gate(
    reporter: Reporter, manager: StandInManager
) -> None:
    gate, notes = Backpressure(4 * LOG_BYTES), Notes(outcomes=[done("a")])
    text = "x" * (LOG_BYTES // 3)
    for n in range(1, 11):
        part = piece("a", n, (1.0, "stdout", text))
        gate.enter(part.size)
        notes.note_lines(part, gate)
    reporter.finish(notes, wants_order=False, error=None)
    sizes = [len(report["logs"]) for report in manager.reports]
    assert sum(sizes) == 10
    assert max(sizes) <= 4
    assert [len(r["outcomes"]) for r in manager.reports][-2:] == [0, 1]
    gate.enter(4 * LOG_BYTES)  # would wait for ever if something were still inside
