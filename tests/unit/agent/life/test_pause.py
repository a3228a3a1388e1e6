"""A machine that stood still does not blame its workers for the silence."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from corral.agent.life.started_workers import WorkerJournal
from corral.agent.life.worker_process import WorkerChild, WorkerLaunch
from corral.core.nodes.worker import WorkerState
from corral.wire.agent import DesiredWorker
from tests.unit.agent.conftest import QUICK, SUPERVISOR, Book, is_alive, wait_until

STOOD_STILL_S = 60.0


def test_a_worker_is_not_killed_for_a_pause_of_the_whole_machine(
    tmp_path: Path, book: Book
) -> None:
    launch = WorkerLaunch(
        SUPERVISOR, {}, tmp_path / "logs", WorkerJournal(tmp_path), QUICK
    )
    worker = msgspec.convert(book.worker(mute=True), DesiredWorker)
    child = WorkerChild(worker, launch, lambda: None, lambda: None)
    child.start()
    try:
        wait_until(lambda: child.word.state is WorkerState.READY)
        pid = child.word.pid
        assert pid is not None
        later = time.monotonic() + STOOD_STILL_S
        child.tick(later)
        for second in range(int(QUICK.silent_after_s)):
            child.tick(later + second)
        assert is_alive(pid)
        child.tick(later + QUICK.silent_after_s + 1.0)
        wait_until(lambda: not is_alive(pid))
    finally:
        child.kill()
        child.wait(60)
