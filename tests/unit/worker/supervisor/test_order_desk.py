from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from corral.engine.envelope import sign
from corral.wire.agent import TimeLimits
from corral.wire.orders import Item
from corral.worker.manager_link import ManagerLink
from corral.worker.pool.runner_pool import RunnerPool
from corral.worker.pool.runner_process import RunnerSpec
from corral.worker.supervisor.order_desk import OrderDesk
from corral.worker.supervisor.reports import Reporter
from tests.unit.worker.conftest import SAMPLES
from tests.unit.worker.standin_manager import (
    INCARNATION,
    SECRET,
    WORKER,
    StandInManager,
    make_order,
    order_item,
)
from tests.unit.worker.warm_runners import launch

SLEEPER = "corral.worker.builtin:SleepWorker"


class Office:
    """A desk with a real pool and a real reporter."""

    def __init__(
        self, worker_class: str = SLEEPER, limits: TimeLimits | None = None
    ) -> None:
        self.manager = StandInManager()
        self.pool = self.make_pool(RunnerSpec(worker_class, {}, launch=launch))
        self.fenced: list[str] = []
        self.link = ManagerLink(self.manager.url, "key")
        self.reporter = Reporter(
            self.link, WORKER, lambda o, d: self.desk.release(o, d), self.fenced.append
        )
        # A busy machine must not turn a test of something else into an overrun.
        limits = limits or TimeLimits(overrun_s=30.0)
        self.desk = OrderDesk(WORKER, self.pool, self.reporter, lambda: None, limits)
        self.reporter.register(1, 1)
        self.desk.open(INCARNATION, SECRET)
        self.pool.start()

    def make_pool(self, spec: RunnerSpec) -> RunnerPool:
        return RunnerPool(spec, 1, lambda: None)

    def serve_later(self, signed: dict[str, str]) -> threading.Thread:
        thread = threading.Thread(target=self.desk.serve, args=(signed,))
        thread.start()
        return thread

    def close(self) -> None:
        self.pool.kill()
        self.pool.join()
        self.reporter.stop()
        self.reporter.join()
        self.link.close()
        self.manager.close()


@pytest.fixture
def office() -> Iterator[Office]:
    made = Office()
    yield made
    made.close()


def nap(task_id: str, seconds: float = 0.0, **more: Any) -> Item:
    return order_item(task_id, {"seconds": seconds}, **more)


def test_order_runs_is_reported_and_let_go(office: Office) -> None:
    office.desk.serve(make_order(nap("a"), nap("b")))
    assert {o["kind"] for o in office.manager.outcomes().values()} == {"completed"}
    assert office.manager.reports[-1]["wants_order"] is True
    assert office.desk.held == []


def test_next_orders_in_the_answers_follow_at_once(office: Office) -> None:
    office.manager.next_orders = [
        make_order(nap(f"t{n}"), order_id=f"o{n}") for n in range(5)
    ]
    office.desk.serve(make_order(nap("first")))
    assert len(office.manager.outcomes()) == 6
    assert len(office.manager.reports) == 6


@pytest.mark.parametrize(
    "signed",
    [
        {"body": make_order(nap("a"))["body"], "signature": "0" * 64},
        {"body": make_order(nap("a"))["body"]},
        {},
        "not even an object",
        make_order(nap("a"), secret="11" * 32),
        make_order(nap("a"), incarnation="another"),
        {"body": "{", "signature": sign("{", SECRET)},
    ],
)
def test_order_that_is_not_for_us_is_dropped(office: Office, signed: object) -> None:
    office.desk.serve(signed)  # type: ignore[arg-type]
    assert office.manager.reports == []
    assert office.desk.held == []


@pytest.mark.spec("C52")
def test_one_attempt_runs_once_however_often_it_comes(office: Office) -> None:
    office.desk.serve(make_order(nap("a"), order_id="o1"))
    office.desk.serve(make_order(nap("a"), order_id="o1"))
    office.desk.serve(make_order(nap("a"), nap("b"), order_id="o2"))
    office.desk.serve(make_order(nap("a", attempt=2), order_id="o3"))
    assert set(office.manager.outcomes()) == {("a", 1), ("b", 1), ("a", 2)}


def test_attempt_dropped_before_it_comes_never_runs(office: Office) -> None:
    office.desk.drop([("a", 1)])
    office.desk.serve(make_order(nap("a"), nap("b")))
    assert set(office.manager.outcomes()) == {("b", 1)}


def test_attempts_are_held_until_the_manager_has_answered(office: Office) -> None:
    refused, is_back = threading.Semaphore(0), threading.Event()

    def refuse(_: dict[str, Any]) -> int | None:
        refused.release()
        return None if is_back.is_set() else 503

    office.manager.refuse = refuse
    thread = office.serve_later(make_order(nap("a")))
    assert all(refused.acquire(timeout=60) for _ in range(2))
    assert office.desk.held == [("a", 1)]
    is_back.set()
    thread.join(60)
    assert office.desk.held == []


def test_drop_in_an_answer_stops_the_running_task(office: Office) -> None:
    thread = office.serve_later(make_order(nap("a", 60.0)))
    office.manager.wait_for(lambda: [r for r in office.manager.reports if r["started"]])
    office.manager.drops = [["a", 1]]
    office.reporter.ring()
    assert office.manager.wait_outcome("a")["kind"] == "cancelled"
    thread.join(60)


def test_order_dropped_while_it_waits_for_a_runner_is_never_sent(
    office: Office,
) -> None:
    runner = office.pool.acquire()
    thread = office.serve_later(make_order(nap("a"), nap("b", timeout_s=9)))
    while len(office.desk.held) < 2:
        threading.Event().wait(0.001)
    office.desk.drop([("a", 1)])
    office.pool.release(runner)
    thread.join(60)
    kinds = {key: o["kind"] for key, o in office.manager.outcomes().items()}
    assert kinds == {("a", 1): "cancelled", ("b", 1): "completed"}


def test_closing_desk_finishes_what_runs_and_returns_the_rest(tmp_path: Path) -> None:
    office, go = Office(f"{SAMPLES}:Gated"), tmp_path / "go"
    runs = order_item("runs", {"until": str(go)})
    first = office.serve_later(make_order(runs, order_id="o1"))
    office.manager.wait_for(lambda: [r for r in office.manager.reports if r["started"]])
    second = office.serve_later(make_order(nap("waits"), order_id="o2"))
    while len(office.desk.held) < 2:
        threading.Event().wait(0.001)
    office.desk.close()
    go.touch()
    office.desk.wait_empty()
    kinds = {key[0]: o["kind"] for key, o in office.manager.outcomes().items()}
    assert kinds == {"runs": "completed", "waits": "returned"}
    office.desk.serve(make_order(nap("late"), order_id="o3"))
    assert office.manager.wait_outcome("late")["kind"] == "returned"
    assert not any(r["wants_order"] for r in office.manager.reports[-2:])
    first.join(60)
    second.join(60)
    office.close()


def test_worker_that_cannot_start_returns_orders_and_says_why() -> None:
    office = Office(f"{SAMPLES}:BrokenInit")
    office.desk.serve(make_order(nap("a")))
    report = office.manager.reports[-1]
    assert report["state"] == "error"
    assert "no licence found" in report["error"]
    assert report["outcomes"][0]["kind"] == "returned"
    office.close()


def test_batch_with_a_killer_in_it_costs_the_others_nothing() -> None:
    office = Office(f"{SAMPLES}:Batcher")
    items = [order_item(name, name) for name in ("a", "die", "c")]
    office.desk.serve(make_order(*items))
    kinds = {key[0]: o["kind"] for key, o in office.manager.outcomes().items()}
    assert kinds == {"a": "completed", "die": "lost", "c": "returned"}
    office.close()


def test_unreadable_payload_fails_alone() -> None:
    office = Office(f"{SAMPLES}:Plain")
    good = [order_item(f"t{n}", n) for n in range(3)]
    bad = replace(good[0], task_id="bad", payload=Raw(rb'"\ud800"'))
    body = make_order(*good, bad)["body"]
    office.desk.serve({"body": body, "signature": sign(body, SECRET)})
    assert office.manager.wait_outcome("bad")["kind"] == "failed"
    kinds = [o["kind"] for o in office.manager.outcomes().values()]
    assert kinds.count("completed") == 3
    office.close()


@pytest.mark.parametrize(
    ("limits", "kill_s"), [(None, 15.0), (TimeLimits(no_overlap_kill_s=3.0), 3.0)]
)
def test_task_that_may_not_overlap_is_stopped_when_we_are_cut_off(
    limits: TimeLimits | None, kill_s: float
) -> None:
    office = Office(limits=limits)
    body = make_order(nap("alone", 60.0))["body"].replace(
        '"job_type"', '"overlap":"never","job_type"'
    )
    signed = {"body": body, "signature": sign(body, SECRET)}
    thread = office.serve_later(signed)
    office.manager.wait_for(lambda: [r for r in office.manager.reports if r["started"]])
    office.desk.cut_off(kill_s - 0.1)
    assert office.desk.held == [("alone", 1)]
    office.desk.cut_off(kill_s)
    assert office.manager.wait_outcome("alone")["kind"] == "cancelled"
    thread.join(60)
    office.close()


def test_how_long_an_order_may_take_comes_from_the_manager() -> None:
    office = Office(limits=TimeLimits(overrun_s=20.0))
    office.desk.serve(make_order(nap("a", 0.15), nap("b", 0.15)))
    kinds = [o["kind"] for o in office.manager.outcomes().values()]
    assert kinds == ["completed"] * 2, "nothing was handed back"
    office.close()
