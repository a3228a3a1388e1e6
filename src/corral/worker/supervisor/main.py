"""A worker's main process, started by an agent: `-m corral.worker.supervisor.main`.

It takes orders from the engine, keeps runners alive and reports to the manager. User
code never runs in it.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import IO, Any, TextIO

import msgspec

from corral.core.backoff import Backoff
from corral.core.nodes.worker import WorkerState
from corral.errors import AlreadyRunning, CorralError, SettingsError, WorkerError
from corral.log_line import LineFormatter, Redaction
from corral.process.keep_alive import Tries
from corral.wire.workers import Registration
from corral.worker.assignment import AgentMessage, Assignment
from corral.worker.depot.fetch_model import (
    ManagerAccess,
    ModelFetch,
    ModelFolders,
    optional,
)
from corral.worker.depot.model_folder import Depot
from corral.worker.manager_link import Away, Fenced, ManagerLink, ReportRefused
from corral.worker.pool.bundle_pool import BundlePool
from corral.worker.pool.code_bundle import FUNCTION_WORKER, PLAIN_TYPES, Bundle
from corral.worker.pool.runner_pool import RunnerPool
from corral.worker.pool.transport import RunnerSpec
from corral.worker.script.access import ScriptAccess, runs_scripts
from corral.worker.supervisor.held_models import RunnerModels
from corral.worker.supervisor.leftovers import Leftovers
from corral.worker.supervisor.model_delivery import Delivery
from corral.worker.supervisor.order_desk import BatchFiles, OrderDesk
from corral.worker.supervisor.reports import Reporter
from corral.worker.supervisor.runner_spec import Recipe, WorkerSource
from corral.worker.supervisor.status_line import StatusLine

log = logging.getLogger(__name__)
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_FENCED = 4
STOP_S = 5.0
ANSWER_S = 2.0
_PREPARE_AGAIN = Backoff(5.0, 300.0, factor=2.5)
THREADS_PER_RUNNER = 2


class Supervisor:
    """Wires the parts of one worker together and owns their end."""

    def __init__(self, given: Assignment, words: IO[bytes], status_fd: int) -> None:
        self._given = given
        self._words = words
        link = ManagerLink(given.manager_url, given.key, given.ca_file)
        runner_models = RunnerModels(
            lambda: self._pool.runners, lambda: self._pool.leaks
        )
        self._reporter = Reporter(
            link,
            given.worker_id,
            self._on_answer,
            lambda why: self._leave(why),
            lambda command: self._desk.run_beside(command),
            runner_models,
        )
        spec = given.spec
        source = WorkerSource(
            spec.worker_class, spec.params, spec.environment, spec.entry
        )
        self._recipe = self._recipe_of(source, link)
        self._pool = self._make_pool(link)
        self._desk = OrderDesk(
            given.worker_id,
            self._pool,
            self._reporter,
            lambda: self._status_line.touch(),
            given.limits,
            BatchFiles(self._delivery(link), Leftovers(self._access)),
        )
        self._status_line = StatusLine(status_fd, self._pool, self._desk, runner_models)
        self._told: tuple[WorkerState, str | None] | None = None
        self._tell_lock = threading.Lock()
        self._is_stopping = threading.Event()
        self._is_consuming = False
        self._answer_all: Callable[[], None] = lambda: None

    def _delivery(self, link: ManagerLink) -> Delivery | None:
        """How models come to this node; a container sees none of its folders."""
        given, code = self._given, self._given.code
        folder = given.spec.params.get("model_dir") or code.model_dir
        if not folder or "docker" in (given.spec.environment or {}):
            return None
        reach = ManagerAccess(
            given.worker_id, given.manager_url, given.key, given.ca_file
        )
        places = ModelFolders(*map(optional, (code.model_hub_cache, code.model_shared)))
        depot = Depot(Path(folder), code.model_disk_bytes)
        room = ModelFetch(depot, link, reach, places)
        return Delivery(room, lambda: self._pool.runners, self._reporter.tell)

    def _recipe_of(
        self, source: WorkerSource, link: ManagerLink, *, is_sandboxed: bool = False
    ) -> Recipe:
        given = self._given
        mark = f"{given.worker_id}.runner"
        return Recipe(
            source, link, given.code, given.containers, mark, is_sandboxed=is_sandboxed
        )

    def _make_pool(self, link: ManagerLink) -> RunnerPool:
        spec, code = self._given.spec, self._given.code
        plain = RunnerSpec(
            spec.worker_class,
            spec.params,
            log_limit=code.log_limit_bytes,
            model_room=code.model_room,
        )
        plain = self._trusted(plain)
        size = spec.concurrency
        if spec.worker_class not in PLAIN_TYPES:
            return RunnerPool(plain, max(size, 1), self._on_change)

        def recipe_of(bundle: Bundle) -> Recipe:
            params = {**spec.params, "archive": bundle.digest, "path": bundle.path}
            source = WorkerSource(FUNCTION_WORKER, params, bundle.environment)
            return self._recipe_of(source, link, is_sandboxed=True)

        plain_types = PLAIN_TYPES[spec.worker_class]
        return BundlePool(plain, max(size, 1), self._on_change, recipe_of, plain_types)

    def _trusted(self, spec: RunnerSpec) -> RunnerSpec:
        """Our own class that runs scripts may speak to the manager, as we do.

        Only where nothing but this machine's own Corral can be loaded as it.
        """
        if not runs_scripts(spec.worker_class) or spec.folder or spec.launch:
            return spec
        params = {**spec.params, "access": msgspec.to_builtins(self._access())}
        return replace(spec, params=params)

    def _access(self) -> ScriptAccess:
        given = self._given
        return ScriptAccess(
            given.worker_id,
            given.node_id,
            given.manager_url,
            given.key,
            given.ca_file,
            given.code,
            given.containers,
        )

    def run(self) -> int:
        """Serve until told to stop; the exit code."""
        self._heed_signals()
        threading.Thread(target=self._listen, name="agent", daemon=True).start()
        self._status_line.start()
        registration = self._register()
        self._status_line.serve_as(registration.incarnation)
        self._desk.open(registration.incarnation, registration.secret)
        if self._open_port(registration):
            self._start_runners()
        self._consume(registration)
        return self._end()

    def _register(self) -> Registration:
        try:
            return self._reporter.register(os.getpid(), self._given.epoch)
        except (Fenced, ReportRefused) as error:
            self._leave(error.message)
            raise

    def _open_port(self, registration: Registration) -> bool:
        """Answer under the worker's URL, when it has one; false when that fails."""
        given = self._given
        if given.spec.url is None:
            return True
        # Late: most workers have no port, and need none of this.
        from corral.relay.app import RelayedManager
        from corral.relay.port import has_port
        from corral.worker.supervisor.worker_port import WorkerIdentity, WorkerPort

        if not has_port(given.spec.url):
            return True
        card = WorkerIdentity(
            given.worker_id,
            given.spec.url,
            re.split(r"[:.]", given.spec.worker_class)[-1],
            registration.token,
            given.key,
            self._status,
        )
        face = WorkerPort(card, RelayedManager(given.manager_url, given.ca_file))
        try:
            face.open(allow_plaintext=given.allow_plaintext)
        except (AlreadyRunning, SettingsError) as error:
            self._pool.fail(error.message, counts=True)
            return False
        self._answer_all = lambda: face.drain(ANSWER_S)
        return True

    def _status(self) -> tuple[str, str | None]:
        """What the job API calls this worker's state, and the job it has."""
        held = next((task_id for task_id, _ in self._desk.held), None)
        if held is None and self._pool.error is not None:
            return "error", None
        return ("running" if held else "idle"), held

    def _tell_isolation(self) -> None:
        level = "process"
        if "docker" in (self._given.spec.environment or {}):
            level = "container"
        elif _runs_code_of_users(self._given.spec.worker_class):
            from corral.worker.isolation import level_for

            try:
                level = str(level_for(self._given.code.isolation))
            except WorkerError:
                level = "none"
        self._status_line.tell(isolation=level)

    def _start_runners(self) -> None:
        # In a thread: trying out a sandbox takes longer than starting.
        threading.Thread(target=self._tell_isolation, daemon=True).start()
        if self._recipe.is_plain:
            self._pool.start()
        else:
            threading.Thread(target=self._prepare, name="prepare", daemon=True).start()

    def _prepare(self) -> None:
        """Start runners once their code is there; try again for as long as it is not.

        A branch may appear and a network come back; meanwhile the worker shows why.
        """
        tries = Tries(_PREPARE_AGAIN)
        while True:
            try:
                spec = self._recipe.make()
            except CorralError as error:
                # A manager out of reach says nothing of this worker.
                self._pool.fail(error.message, counts=not isinstance(error, Away))
            else:
                self._status_line.tell(code=self._recipe.facts)
                self._pool.start(self._trusted(spec))
                return
            if self._is_stopping.wait(tries.next_s()):
                return

    def _consume(self, registration: Registration) -> None:
        """Take orders in this, the main, thread until the consumer is stopped."""
        # Late, so that runners are on their way while Celery is being loaded.
        from corral.engine.celery_app import make_app
        from corral.worker.supervisor import engine_plugin

        engine_plugin.attach(self._desk, self._reporter)
        is_seen = self._given.send_events
        app = make_app(
            self._given.redis_url, node_id=self._given.node_id, send_events=is_seen
        )
        consumer = app.WorkController(
            hostname=f"{self._given.worker_id}@corral",
            pool_cls="threads",
            concurrency=THREADS_PER_RUNNER * max(self._given.spec.concurrency, 1),
            queues=[registration.queue],
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=not is_seen,
            task_events=is_seen,
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
        self._recipe.close()
        self._reporter.stop()
        self._status_line.say_last()
        self._answer_all()
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
                word = msgspec.json.decode(line, type=AgentMessage)
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
        self._recipe.close()
        self._answer_all()
        os._exit(code)

    def _on_answer(self, outcomes: list[Any], drops: list[tuple[str, int]]) -> None:
        self._desk.release(outcomes, drops)

    def _on_change(self) -> None:
        self._status_line.touch()
        self._reporter.tell_models()
        with self._tell_lock:
            error = self._pool.error
            if error is None and not self._pool.is_ready:
                return
            state = WorkerState.READY if error is None else WorkerState.ERROR
            if (state, error) != self._told:
                self._told = (state, error)
                self._reporter.tell_state(state, error)


def _runs_code_of_users(worker_class: str) -> bool:
    return runs_scripts(worker_class) or worker_class in PLAIN_TYPES


def configure_log(given: Assignment) -> None:
    """Every line of this process names its worker, and none holds a secret."""
    secrets = [given.key, *given.code.git_tokens.values()]
    always = {"worker_id": given.worker_id, "node_id": given.node_id}
    formatter = LineFormatter(given.log_format, Redaction(secrets), always)
    root = logging.getLogger()
    root.handlers[:] = [logging.StreamHandler()]
    root.setLevel(given.log_level.upper())
    if given.log_file is not None:
        try:
            root.addHandler(logging.StreamHandler(_opened(Path(given.log_file))))
        except OSError as error:
            root.warning("cannot write %s: %s", given.log_file, error)
    for handler in root.handlers:
        handler.setFormatter(formatter)
    for name in ("celery", "httpx", "httpcore"):
        # An order a line would be most of what this process does.
        logging.getLogger(name).setLevel(logging.WARNING)


def _opened(path: Path) -> TextIO:
    """For appending, by this user alone; each line is one write."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    return os.fdopen(handle, "a", encoding="utf-8", errors="backslashreplace")


def _private_stdout() -> int:
    """The state line's pipe under a number of its own, safe from any print."""
    fd = os.dup(1)
    os.dup2(2, 1)
    return fd


def main() -> None:
    status_fd = _private_stdout()
    words = sys.stdin.buffer
    try:
        given = msgspec.json.decode(words.readline(), type=Assignment)
    except msgspec.MsgspecError as error:
        sys.stderr.write(f"the agent's first line cannot be read: {error}\n")
        sys.exit(EXIT_USAGE)
    configure_log(given)
    try:
        code = Supervisor(given, words, status_fd).run()
    except CorralError as error:
        log.error("%s", error.message)
        code = EXIT_FAILED
    os._exit(code)


if __name__ == "__main__":
    main()
