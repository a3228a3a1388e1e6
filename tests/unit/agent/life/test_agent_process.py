"""The agent as a process: signals, kill -9, and what its next start finds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from corral.agent.config import AgentConfig
from corral.agent.life.started_workers import WorkerJournal
from corral.errors import AlreadyRunning
from corral.process import spawn
from tests.unit.agent.conftest import Book, Running, is_alive, wait_until
from tests.unit.agent.standin import StandInManager

Start = Callable[[AgentConfig], Running]
SCRIPT = str(Path(__file__).parent.with_name("serve_agent.py"))


@contextmanager
def agent_process(config: AgentConfig) -> Iterator[subprocess.Popen[bytes]]:
    told = {
        "manager_url": config.manager_url,
        "home": str(config.home),
        "name": config.name,
        "join_token": config.join_token,
        "supervisor_argv": config.supervisor_argv,
    }
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    running = subprocess.Popen([sys.executable, SCRIPT, json.dumps(told)], env=env)
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def test_sigterm_ends_an_agent_in_order_with_exit_code_0(
    manager: StandInManager, config: AgentConfig, book: Book
) -> None:
    manager.workers = [book.worker()]
    with agent_process(config) as agent:
        manager.await_worker(lambda e: e["state"] == "ready")
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(60) == 0
    assert book.find("left") == ["in peace"]
    assert manager.beats[-1]["workers"] == []


def test_the_next_agent_ends_what_a_killed_one_left_behind(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    manager.workers = [book.worker(kin=True)]
    with agent_process(config) as agent:
        manager.await_worker(lambda e: e["state"] == "ready")
        kin = book.find("kin")[0]
        agent.kill()
        agent.wait()
    # The supervisor leaves by itself when its stdin ends; its runner does not.
    wait_until(lambda: book.find("left") == ["alone"])
    assert is_alive(kin)
    manager.workers = []
    start(config)
    manager.wait_for(lambda: len(manager.registrations) == 2)
    wait_until(lambda: not is_alive(kin))
    assert len(manager.joins) == 1


def test_a_hung_supervisor_of_a_killed_agent_is_ended_too(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    manager.workers = [book.worker()]
    with agent_process(config) as agent:
        pid = manager.await_worker(lambda e: e["state"] == "ready")["pid"]
        os.kill(pid, signal.SIGSTOP)
        agent.kill()
        agent.wait()
    assert is_alive(pid)
    manager.workers = []
    start(config)
    manager.wait_for(lambda: len(manager.registrations) == 2)
    wait_until(lambda: not is_alive(pid))


def test_the_journal_names_a_worker_before_it_is_started(tmp_path: Path) -> None:
    mark = WorkerJournal(tmp_path).begin("w1")
    rows = json.loads((tmp_path / "journal.json").read_text())
    assert rows == [{"mark": mark, "worker_id": "w1", "pid": None, "started": None}]


def test_a_recorded_pid_that_now_is_somebody_else_is_left_alone(
    tmp_path: Path,
) -> None:
    stranger = subprocess.Popen(["sleep", "60"])
    rows = [{"mark": "m", "worker_id": "w1", "pid": stranger.pid, "started": 1.0}]
    (tmp_path / "journal.json").write_text(json.dumps(rows))
    try:
        WorkerJournal(tmp_path).end_orphans()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_second_agent_on_the_same_folder_is_refused(
    manager: StandInManager, config: AgentConfig, start: Start
) -> None:
    start(config)
    manager.wait_for(lambda: manager.beats)
    second = start(config)
    second.join()
    assert isinstance(second.error, AlreadyRunning)


def test_a_supervisor_that_cannot_be_started_is_tried_again(
    manager: StandInManager, config: AgentConfig, book: Book, start: Start
) -> None:
    manager.workers = [book.worker()]
    start(replace(config, supervisor_argv=("/nonexistent/python",)))
    entry = manager.await_worker(lambda e: e["restarts"] >= 2)
    assert "cannot be started" in entry["error"]


def test_an_agent_waits_for_a_manager_that_is_down_at_its_start(
    manager: StandInManager,
    config: AgentConfig,
    start: Start,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = start(config)
    manager.wait_for(lambda: manager.beats)
    first.stop()
    manager.stop()
    running = start(replace(config, join_token=None, join_wait_s=0.0))
    wait_until(lambda: "does not answer" in caplog.text)
    assert running.thread.is_alive()
    manager.start()
    manager.wait_for(lambda: len(manager.registrations) == 2)


FAMILY = """
import subprocess, sys, time
wait = "import time; time.sleep(60)"
for words in ([], ["corral.worker.container.guardian"]):
    child = subprocess.Popen([sys.executable, "-c", wait, *words])
    print(child.pid, flush=True)
time.sleep(60)
"""


def test_a_family_is_killed_but_for_who_clears_up_after_it() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert parent.stdout is not None
    child, clearing = (psutil.Process(int(parent.stdout.readline())) for _ in range(2))
    spawn.kill_family(parent, "no such mark")
    try:
        wait_until(lambda: not is_alive(child.pid))
        assert clearing.is_running()
    finally:
        clearing.kill()
        parent.stdout.close()
