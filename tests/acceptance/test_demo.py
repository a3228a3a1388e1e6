"""The demo as users run it: it keeps its promises and leaves nothing behind."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.acceptance.cluster import ROOT, clean_environment, until

DEMO_S, STOP_S = 170.0, 90.0


@contextmanager
def demo(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The demo with `folder` for its temporary files, so that its own are known."""
    started = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "demo.py")],
        env=clean_environment(TMPDIR=str(folder)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield started
    finally:
        for process in remains(folder):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        started.wait(60)


def remains(folder: Path) -> list[psutil.Process]:
    """Processes that have to do with the folder by what they were told."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            told = [*process.cmdline(), process.environ().get("TMPDIR", "")]
            if any(str(folder) in word for word in told):
                found.append(process)
    return found


@pytest.mark.timeout(240)
def test_demo_loses_nothing_to_a_killed_worker_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    with demo(tmp_path) as process:
        said = process.communicate(timeout=DEMO_S)[0]
        assert process.returncode == 0, said
        until("all ended", lambda: not remains(tmp_path))
    total, done = row(said, "tasks"), row(said, "completed")
    assert total.split()[0] == done
    assert int(done) >= 300
    assert int(row(said, "failed tries, repeated")) >= 40
    assert "kill -9 of worker" in said
    assert int(row(said, "share of the second node").split()[0]) > 0
    assert re.search(r"[\d.]+ s / [\d.]+ s", row(said, "submit to result, p50 / p99"))
    assert not list(tmp_path.iterdir())


def row(said: str, name: str) -> str:
    """What the summary has beside a name."""
    found = re.search(rf"│ {re.escape(name)} +│ (.+?) +│", said)
    assert found, said
    return found[1]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_demo_ends_everything_it_started(
    tmp_path: Path, number: signal.Signals
) -> None:
    with demo(tmp_path) as process:
        until("a part of Corral runs", lambda: len(remains(tmp_path)) > 3)
        process.send_signal(number)
        said = process.communicate(timeout=STOP_S)[0]
        assert process.returncode == 130, said
        until("all ended", lambda: not remains(tmp_path))
    assert not list(tmp_path.iterdir())
