"""Plain Celery for comparison: two prefork processes on a Redis like Corral's own.

It gets every help its users would give it: hiredis, no events, gossip or mingle, and
the faster of its two ways to send many tasks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.meter import BenchError, Kinds, Usage, family, measure
from corral.embedded.folder import Folder
from corral.embedded.redis import Redis, open_redis
from corral.embedded.server import running

PREFORK = 2
START_S, STOP_S, WAIT_S = 60.0, 15.0, 120.0
_QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat")


@dataclass(frozen=True, slots=True)
class CelerySide:
    """A running Celery worker and its broker."""

    worker: subprocess.Popen[bytes]
    redis_pid: int
    echo: Any

    def bulk(self, tasks: int, *, is_group: bool) -> Usage:
        """Send `tasks` in a loop or as a group, and read every result."""
        said: list[object] = []

        def send_and_read() -> None:
            handles = self._group(tasks) if is_group else self._loop(tasks)
            said.extend(handles.join_native(timeout=WAIT_S))

        usage = measure(send_and_read, self.processes)
        if said != [{"echoed": number} for number in range(tasks)]:
            raise BenchError("Celery: some results are not what was sent")
        return usage

    def _loop(self, tasks: int) -> Any:
        from celery.result import ResultSet

        return ResultSet([self.echo.delay({"message": n}) for n in range(tasks)])

    def _group(self, tasks: int) -> Any:
        from celery import group

        return group(self.echo.s({"message": n}) for n in range(tasks)).apply_async()

    def round_trips_s(self, count: int) -> list[float]:
        took = []
        for number in range(count):
            begun = time.perf_counter()
            self.echo.delay({"message": number}).get(timeout=WAIT_S)
            took.append(time.perf_counter() - begun)
        return took

    def processes(self) -> Kinds:
        return {"worker": family(self.worker.pid), "redis": family(self.redis_pid)}


@contextmanager
def celery_side(home: Path) -> Iterator[CelerySide]:
    """Redis and a Celery worker of our own, in `home`."""
    folder = Folder(home)
    folder.make()
    redis = open_redis(folder)
    with running(redis, home / "redis.log"):
        # Before the application is imported: it reads its broker there.
        os.environ["BENCH_CELERY_URL"] = redis.url
        from bench.celery_app import app, echo

        worker = _start(home)
        try:
            _await_answer(echo, worker, home)
            yield CelerySide(worker, _redis_pid(redis), echo)
        finally:
            app.close()
            _stop(worker)


def _start(home: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "celery", "-A", "bench.celery_app", "worker"]
    options = ["-P", "prefork", "-c", str(PREFORK), "-l", "WARNING", *_QUIET]
    root = Path(__file__).resolve().parents[1]
    with (home / "celery.log").open("wb") as log:
        return subprocess.Popen(
            [*command, *options],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _await_answer(echo: Any, worker: subprocess.Popen[bytes], home: Path) -> None:
    from celery.exceptions import TimeoutError as NoAnswer

    handle = echo.delay({"message": "hello"})
    give_up_at = time.monotonic() + START_S
    while worker.poll() is None and time.monotonic() < give_up_at:
        with suppress(NoAnswer):
            handle.get(timeout=0.5)
            return
    said = (home / "celery.log").read_text(errors="replace").strip().splitlines()
    raise BenchError(f"Celery did not start: {said[-1] if said else 'no word'}")


def _redis_pid(redis: Redis) -> int:
    import redis as client

    with client.Redis.from_url(redis.client_url) as link:
        return int(link.info("server")["process_id"])


def _stop(worker: subprocess.Popen[bytes]) -> None:
    members = family(worker.pid)
    worker.terminate()
    with suppress(subprocess.TimeoutExpired):
        worker.wait(STOP_S)
    for process in members:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    worker.wait()
