"""A worker's main process: `python -m corral.worker.supervisor`, started by an agent.

It takes orders from the engine, keeps runners alive and reports to the manager. User
code never runs in it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from types import FrameType
from typing import IO, Any

import msgspec

from corral.errors import CorralError
from corral.worker.beacon import Beacon
from corral.worker.desk import Desk
from corral.worker.manager_link import Fenced, ManagerLink, Refused
from corral.worker.reporting import Registration, Reporter
from corral.worker.runner_pool import RunnerPool
from corral.worker.runner_process import RunnerSpec

log = logging.getLogger(__name__)

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_FENCED = 4
STOP_S = 5.0
THREADS_PER_RUNNER = 2


class Spec(msgspec.Struct):
    worker_class: str
    name: str = ""
    job_types: list[str] = msgspec.field(default_factory=list)
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    concurrency: int = 1


class Assignment(msgspec.Struct):
    """The agent's first line: whom to work for, and as what."""

    worker_id: str
    node_id: str
    manager_url: str
    key: str
    epoch: int
    redis_url: str
    spec: Spec
    ca_file: str | None = None
    log_level: str = "INFO"


class Word(msgspec.Struct):
    """Any later line of the agent."""

    drop: list[tuple[str, int]] = msgspec.field(default_factory=list)
    cut_off_s: float = 0.0


class Supervisor:
    """Wires the parts of one worker together and owns their end."""

    def __init__(self, given: Assignment, words: IO[bytes], beacon_fd: int) -> None:
        self._given = given
        self._words = words
        link = ManagerLink(given.manager_url, given.key, given.ca_file)
        self._reporter = Reporter(
            link, given.worker_id, self._on_answer, lambda why: self._leave(why)
        )
        spec = RunnerSpec(given.spec.worker_class, given.spec.params)
        self._pool = RunnerPool(spec, max(given.spec.concurrency, 1), self._on_change)
        self._desk = Desk(
            given.worker_id, self._pool, self._reporter, lambda: self._beacon.touch()
        )
        self._beacon = Beacon(beacon_fd, self._pool, self._desk)
        self._told: tuple[str, str | None] | None = None
        self._tell_lock = threading.Lock()
        self._is_stopping = threading.Event()
        self._is_consuming = False

    def run(self) -> int:
        """Serve until told to stop; the exit code."""
        self._heed_signals()
        threading.Thread(target=self._listen, name="agent", daemon=True).start()
        self._beacon.start()
        registration = self._register()
        self._beacon.incarnation = registration.incarnation
        self._desk.open(registration.incarnation, registration.secret)
        self._pool.start()
        self._consume(registration)
        return self._end()

    def _register(self) -> Registration:
        try:
            return self._reporter.register(os.getpid(), self._given.epoch)
        except (Fenced, Refused) as error:
            self._leave(error.message)
            raise

    def _consume(self, registration: Registration) -> None:
        """Take orders in this, the main, thread until the consumer is stopped."""
        # Late, so that runners are on their way while Celery is being loaded.
        from corral.engine.factory import make_app
        from corral.worker import orders

        orders.attach(self._desk, self._reporter)
        app = make_app(self._given.redis_url, node_id=self._given.node_id)
        consumer = app.WorkController(
            hostname=f"{self._given.worker_id}@corral",
            pool_cls="threads",
            concurrency=THREADS_PER_RUNNER * max(self._given.spec.concurrency, 1),
            queues=[registration.queue],
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            loglevel="WARNING",
        )
        self._is_consuming = True
        if not self._is_stopping.is_set():
            consumer.start()

    def _end(self) -> int:
        stopping = self._is_stopping.is_set()
        if not stopping:
            log.error("the engine's consumer ended by itself")
        self._pool.kill()
        self._reporter.stop()
        self._beacon.say_last()
        return 0 if stopping else EXIT_FAILED

    def _heed_signals(self) -> None:
        for name in ("SIGTERM", "SIGINT", "SIGBREAK"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if not self._is_stopping.is_set():
            self._is_stopping.set()
            # Not here: a handler runs between any two steps of the main thread,
            # perhaps while it holds the very lock that is needed.
            threading.Thread(target=self._stop, name="stop", daemon=True).start()

    def _stop(self) -> None:
        """Finish what runs, hand back the rest, report it all, then stop."""
        log.info("stopping")
        self._desk.close()
        self._desk.wait_empty()
        if not self._is_consuming:
            self._kill(0)
        celery_state = sys.modules.get("celery.worker.state")
        if celery_state is not None:
            celery_state.should_stop = 0  # type: ignore[attr-defined]
        # A consumer that waits for a Redis that is away does not look at that.
        threading.Event().wait(STOP_S)
        self._kill(0)

    def _listen(self) -> None:
        """Lines of the agent; their end means that it is gone."""
        for line in self._words:
            try:
                word = msgspec.json.decode(line, type=Word)
            except msgspec.MsgspecError as error:
                log.warning("the agent said something unknown: %s", error)
                continue
            self._desk.drop(word.drop)
            self._desk.cut_off(word.cut_off_s)
        self._kill(EXIT_FAILED)

    def _leave(self, why: str) -> None:
        log.error("the manager does not want this worker any more: %s", why)
        self._kill(EXIT_FENCED)

    def _kill(self, code: int) -> None:
        self._pool.kill()
        os._exit(code)

    def _on_answer(self, outcomes: list[Any], drops: list[tuple[str, int]]) -> None:
        self._desk.release(outcomes, drops)

    def _on_change(self) -> None:
        self._beacon.touch()
        with self._tell_lock:
            error = self._pool.error
            if error is None and not self._pool.is_ready:
                return
            state = ("ready", None) if error is None else ("error", error)
            if state != self._told:
                self._told = state
                self._reporter.tell_state(*state)


def _private_stdout() -> int:
    """The state line's pipe under a number of its own, safe from any print."""
    fd = os.dup(1)
    os.dup2(2, 1)
    return fd


def main() -> None:
    beacon_fd = _private_stdout()
    words = sys.stdin.buffer
    try:
        given = msgspec.json.decode(words.readline(), type=Assignment)
    except msgspec.MsgspecError as error:
        sys.stderr.write(f"the agent's first line cannot be read: {error}\n")
        sys.exit(EXIT_USAGE)
    logging.basicConfig(
        level=given.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    # An order a line would be most of what this process does.
    logging.getLogger("celery").setLevel(logging.WARNING)
    try:
        code = Supervisor(given, words, beacon_fd).run()
    except CorralError as error:
        log.error("%s", error.message)
        code = EXIT_FAILED
    os._exit(code)


if __name__ == "__main__":
    main()
