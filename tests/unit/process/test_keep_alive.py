"""Processes: they die with their parent, stop when asked, and are told apart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

import corral
from corral.core.backoff import Backoff
from corral.process.keep_alive import Command, Restarts, Tries, launch, stop
from corral.process.spawn import ProcessIdentity, end, identity_of, is_alive
from tests.acceptance.cluster import until

WAIT = "import signal, sys; print('up', flush=True); signal.pause()"
DEAF = f"import signal; signal.signal(15, signal.SIG_IGN); {WAIT}"
ENV = {**os.environ, "PYTHONPATH": str(Path(corral.__file__).parent.parent)}
PARENT = """
import os, signal, sys
from pathlib import Path
from corral.process.keep_alive import Command, launch
child = launch(Command((sys.executable, "-c", sys.argv[1]), os.environ), Path("log"))
print(child.popen.pid, flush=True)
signal.pause()
"""


def python(code: str) -> Command:
    return Command((sys.executable, "-c", code), dict(os.environ))


def await_word(log: Path, popen: subprocess.Popen[bytes]) -> None:
    while "up" not in log.read_text():
        assert popen.poll() is None
        threading.Event().wait(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child")
def test_child_dies_when_its_parent_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, WAIT]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, cwd=tmp_path, env=ENV
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        # The orphan is nobody's child here: init may leave it a zombie for a while.
        with suppress(psutil.NoSuchProcess):
            until("it ends", lambda: child.status() == psutil.STATUS_ZOMBIE)


def test_stopped_child_ends_by_the_signal_it_was_sent(tmp_path: Path) -> None:
    process = launch(python(WAIT), tmp_path / "log")
    await_word(tmp_path / "log", process.popen)
    assert stop(process.popen, 60, signal.SIGINT) != 0
    assert stop(process.popen, 60, signal.SIGINT) != 0


def test_child_that_ignores_the_signal_is_killed(tmp_path: Path) -> None:
    process = launch(python(DEAF), tmp_path / "log")
    await_word(tmp_path / "log", process.popen)
    assert stop(process.popen, 0.1) == -signal.SIGKILL


def test_orphan_is_ended_by_its_mark_and_never_its_successor(tmp_path: Path) -> None:
    process = launch(python(WAIT), tmp_path / "log")
    known = identity_of(process.popen.pid)
    assert known is not None
    stranger = ProcessIdentity(known.pid, known.started - 60)
    assert not is_alive(stranger)
    assert end(stranger, signal.SIGTERM, 1)
    assert process.popen.poll() is None
    assert end(known, signal.SIGKILL, 60)
    assert not is_alive(known)
    process.popen.wait()
    assert identity_of(process.popen.pid) is None


def test_log_is_private_and_its_last_line_is_of_this_start_only(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = launch(python("print('of the first')"), log)
    first.popen.wait()
    second = launch(python("pass"), log)
    second.popen.wait()
    assert first.last_line() == "of the first"
    assert second.last_line() == ""
    assert log.stat().st_mode & 0o777 == 0o600


def test_missing_program_is_named_in_the_log(tmp_path: Path) -> None:
    process = launch(Command(("/no/such/program",), {}), tmp_path / "log")
    assert process.popen.wait() != 0
    assert "/no/such/program" in process.last_line()


def test_lives_follow_each_other_with_growing_pauses_until_it_is_over() -> None:
    restarts = Restarts(Backoff(1.0, 4.0, jitter=0.0))
    pauses: list[float] = []

    def wait(pause_s: float) -> bool:
        pauses.append(pause_s)
        return len(pauses) < 6

    restarts.keep(restarts.end, wait)
    assert pauses == [0.0, 1.0, 2.0, 4.0, 4.0, 4.0]
    assert restarts.failures == 5


def test_deaths_before_a_good_life_do_not_count() -> None:
    restarts = Restarts(Backoff(1.0, 4.0, jitter=0.0), steady_s=0.0)
    restarts.begin()
    assert [restarts.end(), restarts.end()] == [1.0, 1.0]
    restless = Restarts(Backoff(1.0, 4.0, jitter=0.0))
    restless.begin()
    assert [restless.end(), restless.end()] == [1.0, 2.0]
    assert restless.end(was_good=True) == 1.0


def test_pause_is_never_longer_than_its_cap() -> None:
    tries = Tries(Backoff(1.0, 2.0, jitter=0.5))
    assert all(0.5 <= tries.next_s() <= 2.0 for _ in range(50))


def test_child_without_a_group_of_its_own_is_killed_alone() -> None:
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE) as it:
        assert it.stdout is not None
        it.stdout.readline()
        assert stop(it, 0.1) == -signal.SIGKILL
