"""A real supervisor with real Redis, Celery and runners; only the manager is small."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from celery import Celery

from corral.engine.celery_app import BELL, make_app
from tests.unit.worker.standin_manager import (
    QUEUE,
    WORKER,
    StandInManager,
    make_order,
    order_item,
)
from tests.unit.worker.supervised import ROOT, Broker, Supervised, until

SAMPLES = "tests.unit.worker.sample_workers"
SLEEPER = "corral.worker.builtin:SleepWorker"
ECHO = "corral.worker.builtin:EchoWorker"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp("r"))
    yield made
    made.client.close()
    made.kill()


@pytest.fixture
def manager() -> Iterator[StandInManager]:
    made = StandInManager()
    yield made
    made.close()


@pytest.fixture
def worker(
    manager: StandInManager, broker: Broker, tmp_path: Path
) -> Iterator[Supervised]:
    broker.client.flushall()
    made = Supervised(manager, broker, tmp_path)
    yield made
    made.close()


@pytest.fixture
def app(broker: Broker) -> Iterator[Celery]:
    made = make_app(broker.url)
    yield made
    made.close()


def nap(task_id: str, seconds: float = 0.0, **more: Any) -> Any:
    return order_item(task_id, {"seconds": seconds}, **more)


def wait_started(manager: StandInManager, task_id: str) -> None:
    manager.wait_for(
        lambda: [s for r in manager.reports for s in r["started"] if s[0] == task_id]
    )


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.spec("B24")
def test_signed_order_from_the_queue_runs_and_is_reported(
    worker: Supervised, broker: Broker, manager: StandInManager
) -> None:
    worker.start(ECHO)
    items = [order_item(f"t{n}", {"message": n}) for n in range(50)]
    broker.send(make_order(*items))
    manager.wait_for(lambda: len(manager.outcomes()) == 50)
    told = manager.outcomes()["t7", 1]
    assert told["result"] == {"echoed": 7}
    assert manager.registrations == [{"pid": worker.process.pid, "epoch": 3}]
    assert [r["state"] for r in manager.reports if "state" in r] == ["ready"]
    assert worker.wait_line(lambda line: line["state"] == "ready")["held"] == []


@pytest.mark.spec("D22")
def test_unsigned_foreign_and_repeated_orders_do_not_run(
    worker: Supervised, broker: Broker, manager: StandInManager
) -> None:
    worker.start(SLEEPER)
    unsigned = {**make_order(nap("unsigned")), "signature": "ab" * 32}
    foreign = make_order(nap("foreign"), incarnation="another")
    once = make_order(nap("once"), order_id="o-2")
    for signed in (unsigned, foreign, {"no": "order"}, once, once):
        broker.send(signed)
    broker.send(make_order(nap("last"), order_id="o-3"))
    manager.wait_outcome("last")
    manager.wait_outcome("once")
    assert set(manager.outcomes()) == {("once", 1), ("last", 1)}
    assert "signature" in worker.log.read_text()


@pytest.mark.spec("C9")
def test_inspect_active_answers_within_2_s_while_an_order_runs(
    worker: Supervised, broker: Broker, manager: StandInManager, app: Celery
) -> None:
    worker.start(f"{SAMPLES}:Hog")
    broker.send(make_order(order_item("busy", None)))
    wait_started(manager, "busy")
    # With a limit it is over as soon as one has answered.
    inspect = app.control.inspect(
        destination=[f"{WORKER}@corral"], timeout=30.0, limit=1
    )
    answers: dict[str, Any] = {}

    def seconds() -> float:
        began = time.monotonic()
        answers.update(inspect.active())
        return time.monotonic() - began

    assert statistics.median(seconds() for _ in range(5)) < 2.0
    [active] = answers[f"{WORKER}@corral"]
    assert active["name"] == "corral.order"
    path = str(ROOT / "src")
    command = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "corral.engine", "inspect", "active"],
        env={**os.environ, "PYTHONPATH": path, "CORRAL_REDIS_URL": broker.url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "corral.order" in command.stdout, command.stderr


def test_remote_control_can_look_but_not_touch(
    worker: Supervised, broker: Broker, manager: StandInManager, app: Celery
) -> None:
    worker.start(SLEEPER)
    worker.wait_line(lambda line: line["state"] == "ready")
    name = f"{WORKER}@corral"
    until(lambda: app.control.ping(destination=[name], timeout=5.0, limit=1))
    for command, arguments in {
        "shutdown": {},
        "pool_restart": {},
        "pool_grow": {"n": 1},
        "cancel_consumer": {"queue": QUEUE},
        "add_consumer": {"queue": "elsewhere"},
        "revoke": {"task_id": ["o-9"]},
        "rate_limit": {"task_name": "corral.order", "rate_limit": "1/h"},
        "time_limit": {"task_name": "corral.order", "hard": 1, "soft": 1},
        "autoscale": {"max": 9, "min": 9},
        "terminate": {"signal": "KILL", "task_id": "o-9"},
        "hello": {"from_node": "x", "revoked": ["o-9"]},
    }.items():
        app.control.broadcast(command, arguments, destination=[name])
    broker.send(make_order(nap("still here"), order_id="o-9"), "o-9")
    assert manager.wait_outcome("still here")["kind"] == "completed"
    stats = app.control.inspect(destination=[name], timeout=30.0, limit=1).stats()
    assert stats[name]["pool"]["max-concurrency"] == 2


def test_bell_fetches_what_must_be_dropped(
    worker: Supervised, broker: Broker, manager: StandInManager, app: Celery
) -> None:
    worker.start(SLEEPER)
    broker.send(make_order(nap("long", 60.0)))
    wait_started(manager, "long")
    manager.drops = [["long", 1]]
    app.control.broadcast(BELL, destination=[f"{WORKER}@corral"])
    assert manager.wait_outcome("long")["kind"] == "cancelled"


def test_agents_word_drops_a_running_task(
    worker: Supervised, broker: Broker, manager: StandInManager
) -> None:
    worker.start(SLEEPER)
    broker.send(make_order(nap("long", 60.0)))
    wait_started(manager, "long")
    line = worker.wait_line(lambda line: line["held"])
    assert (line["state"], line["held"]) == ("busy", [["long", 1]])
    worker.tell({"drop": [["long", 1], ["unknown", 7]]})
    assert manager.wait_outcome("long")["kind"] == "cancelled"
    worker.wait_line(lambda line: line["state"] == "ready" and not line["held"])


def test_killed_runner_loses_its_task_and_the_worker_serves_again(
    worker: Supervised, broker: Broker, manager: StandInManager
) -> None:
    worker.start(SLEEPER)
    broker.send(make_order(nap("victim", 60.0)))
    wait_started(manager, "victim")
    [pid] = worker.runners()
    os.kill(pid, signal.SIGKILL)
    victim = manager.wait_outcome("victim")
    assert victim["kind"] == "lost"
    assert victim["error"]["kind"] == "worker_died"
    assert "SIGKILL" in victim["error"]["message"]
    broker.send(make_order(nap("next"), order_id="o-2"))
    assert manager.wait_outcome("next")["kind"] == "completed"


@pytest.mark.parametrize("worker_class", [SLEEPER, f"{SAMPLES}:Hog"])
def test_everything_dies_with_the_agent(
    worker: Supervised, broker: Broker, manager: StandInManager, worker_class: str
) -> None:
    worker.start(worker_class)
    broker.send(make_order(nap("long", 60.0)))
    wait_started(manager, "long")
    pids = worker.runners()
    assert worker.process.stdin is not None
    worker.process.stdin.close()
    assert worker.wait_exit() == 1
    until(lambda: all(map(is_gone, pids)))


def test_runners_die_with_a_killed_supervisor(
    worker: Supervised, broker: Broker, manager: StandInManager
) -> None:
    worker.start(f"{SAMPLES}:Hog", concurrency=2)
    broker.send(make_order(nap("long", 60.0)))
    wait_started(manager, "long")
    until(lambda: len(worker.runners()) == 2)
    pids = worker.runners()
    worker.process.kill()
    until(lambda: all(map(is_gone, pids)))


@pytest.mark.spec("C53")
def test_asked_to_stop_it_finishes_what_runs_and_returns_the_rest(
    worker: Supervised, broker: Broker, manager: StandInManager
) -> None:
    worker.start(SLEEPER)
    broker.send(make_order(nap("runs", 2.0), nap("unstarted", 2.0)))
    wait_started(manager, "runs")
    broker.send(make_order(nap("waits"), order_id="o-2"))
    worker.wait_line(lambda line: ["waits", 1] in line["held"])
    worker.process.terminate()
    assert worker.wait_exit() == 0
    kinds = {key[0]: o["kind"] for key, o in manager.outcomes().items()}
    assert kinds == {"runs": "completed", "unstarted": "returned", "waits": "returned"}
    assert worker.lines[-1]["held"] == []


def test_class_that_does_not_import_shows_as_error_and_returns_orders(
    worker: Supervised, broker: Broker, manager: StandInManager
) -> None:
    worker.start("tests.unit.worker.broken_import:Any")
    line = worker.wait_line(lambda line: line["state"] == "error")
    assert "a_package_nobody_has" in line["error"]
    manager.wait_for(lambda: [r for r in manager.reports if r.get("state") == "error"])
    broker.send(make_order(nap("a")))
    assert manager.wait_outcome("a")["kind"] == "returned"


def test_results_survive_a_manager_that_is_away(
    worker: Supervised, broker: Broker, manager: StandInManager
) -> None:
    worker.start(SLEEPER)
    worker.wait_line(lambda line: line["state"] == "ready")
    manager.wait_for(lambda: manager.reports)
    with manager.changed:
        manager.statuses = [503] * 4
    broker.send(make_order(nap("kept")))
    assert worker.wait_line(lambda line: line["held"])["held"] == [["kept", 1]]
    assert manager.wait_outcome("kept")["kind"] == "completed"
    worker.wait_line(lambda line: not line["held"])


def test_worker_goes_on_after_redis_was_killed_and_came_back_empty(
    worker: Supervised, broker: Broker, manager: StandInManager
) -> None:
    worker.start(SLEEPER)
    broker.send(make_order(nap("before")))
    manager.wait_outcome("before")
    broker.kill()
    broker.start()
    broker.send(make_order(nap("after"), order_id="o-2"))
    assert manager.wait_outcome("after")["kind"] == "completed"


@pytest.mark.parametrize("status", [403, 409])
def test_worker_the_manager_does_not_want_leaves(
    worker: Supervised, manager: StandInManager, status: int
) -> None:
    manager.statuses = [status]
    worker.start(SLEEPER)
    assert worker.wait_exit() == 4


def test_incarnation_that_was_replaced_stops_at_once(
    worker: Supervised, broker: Broker, manager: StandInManager
) -> None:
    worker.start(SLEEPER)
    broker.send(make_order(nap("a", 60.0)))
    wait_started(manager, "a")
    pids = worker.runners()
    manager.refuse = lambda _: 409
    worker.tell({"drop": [["a", 1]]})
    assert worker.wait_exit() == 4
    until(lambda: all(map(is_gone, pids)))


def test_first_line_that_makes_no_sense_is_refused() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "corral.worker.supervisor.main"],
        input=b'{"worker_id": 5}\n',
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    assert run.returncode == 2
    assert b"first line" in run.stderr
