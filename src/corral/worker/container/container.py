"""One container from its start until it is gone: output, exit code, stop, exec."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Sequence

from docker.errors import APIError, NotFound

from corral.errors import WorkerError
from corral.worker.container.connection import ENGINE_FAULTS, EngineAccess, one_line
from corral.worker.container.exec import LOST, ContainerExec
from corral.worker.container.output import ContainerStream
from corral.worker.container.processes import ContainerProcesses, end_forgotten
from corral.worker.isolation.process import OnOutput

log = logging.getLogger(__name__)

KILLED = 128 + 9
KILL_S = 10.0
REMOVE_S = 30.0
RETRY_S = 0.2
LOOK_S = 0.1


class RunningContainer:
    """Made by an engine; whoever has it calls `stop` in the end."""

    def __init__(
        self,
        line: EngineAccess,
        id_: str,
        stream: ContainerStream,
        on_output: OnOutput,
        *,
        has_memory_limit: bool = False,
    ) -> None:
        self.id = id_
        self.fault: str | None = None
        self.oom_killed = False
        self.is_stopping = False
        self.pid = 0
        self._connection = line
        self._processes = ContainerProcesses(id_)
        self._on_output = on_output
        self._has_memory_limit = has_memory_limit
        self._was_killed = False
        self._code: int | None = None
        self._ended = threading.Event()
        self._stop_lock = threading.Lock()
        self._is_removing = False
        self._is_gone = False
        name = f"container-{id_[:12]}"
        self._watcher = threading.Thread(
            target=self._watch, args=(stream,), name=name, daemon=True
        )

    @property
    def isolation(self) -> str:
        return "container"

    @property
    def is_running(self) -> bool:
        return not self._ended.is_set()

    @property
    def is_lost(self) -> bool:
        """Has the engine gone away under it? Nobody knows how it would have ended."""
        return self.fault is not None

    def begin(self) -> None:
        """Start the container; its output is attached already, so none is missed."""
        self._connection.api.start(self.id)
        with contextlib.suppress(*ENGINE_FAULTS):
            self.pid = self._connection.api.inspect_container(self.id)["State"]["Pid"]
        self._watcher.start()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The exit code once all output has been passed on; None when time is up.

        128 + n stands for an end by signal n.
        """
        self._ended.wait(timeout_s)
        return self._code if self._ended.is_set() else None

    def signal(self, number: int) -> None:
        """Send a signal to every process of the container; it may have ended."""
        self._was_killed |= number == signal.SIGKILL
        others = self._processes.pids() - {self.pid} if self.pid else set()
        with contextlib.suppress(*ENGINE_FAULTS):
            self._connection.api.kill(self.id, int(number))
        for pid in others:
            self._processes.send_to(pid, signal.Signals(number))

    def stop(self, grace_s: float) -> None:
        """SIGTERM, SIGKILL after the grace; returns when the container is gone.

        Raises:
            WorkerError: the engine does not remove it.
        """
        self.is_stopping = True
        if not self._ended.is_set() and grace_s > 0:
            self._ask(grace_s)
        with self._stop_lock:
            if not self._is_gone:
                if self.is_running:
                    self.signal(signal.SIGKILL)
                    # An engine may call the end of what is being removed a success.
                    self._ended.wait(KILL_S)
                self._is_removing = True
                remove(self._connection, self.id)
                self._is_gone = True
        # What it said last may still be on its way; what never ends is not awaited.
        if self._watcher.ident is not None:
            self._watcher.join(REMOVE_S)

    def exec(self, argv: Sequence[str], on_output: OnOutput) -> ContainerExec:
        """Run one more command in the container; it ends with it at the latest.

        Raises:
            WorkerError: the container has ended, or the command cannot be started.
        """
        if not self.is_running:
            raise WorkerError("the job has ended")
        try:
            made = self._connection.api.exec_create(self.id, list(argv))["Id"]
            stream = ContainerStream(self._connection.api.exec_start(made, socket=True))
        except ENGINE_FAULTS as error:
            raise WorkerError(
                f"{argv[0]!r} cannot be run in the container: {one_line(error)}"
            ) from error
        return ContainerExec(self._connection.api, made, self.id, stream, on_output)

    def _ask(self, grace_s: float) -> None:
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while not self._ended.wait(LOOK_S) and time.monotonic() < deadline:
            # The kernel hides the signal from a first process without a handler.
            is_deaf = not self._processes.heeds(self.pid, signal.SIGTERM)
            if is_deaf and self._processes.pids() <= {self.pid}:
                return

    def _watch(self, stream: ContainerStream) -> None:
        try:
            stream.pass_on(self._on_output)
        except (OSError, ValueError) as error:
            log.warning("output of container %s is cut: %s", self.id[:12], error)
        finally:
            self._collect()

    def _collect(self) -> None:
        try:
            code = int(self._connection.api.wait(self.id, timeout=None)["StatusCode"])
            self._code = KILLED if self._is_removing else code
            state = self._connection.api.inspect_container(self.id)["State"]
            self.oom_killed = bool(state.get("OOMKilled")) or self._looks_oom_killed()
        except NotFound:  # removed from outside, or by `stop` before we looked
            self._code = KILLED if self._code is None else self._code
        except ENGINE_FAULTS as error:
            self.fault = f"the container engine went away: {one_line(error)}"
            self._code = LOST if self._code is None else self._code
        finally:
            self._ended.set()

    def _looks_oom_killed(self) -> bool:
        # Not every engine notices, and its control group is gone by now.
        was_killed_by_kernel = self._code == KILLED and not self._was_killed
        return self._has_memory_limit and was_killed_by_kernel


def remove(line: EngineAccess, id_: str) -> None:
    """Kill and remove a container; returns when the engine knows it no more.

    Raises:
        WorkerError: it is still there after half a minute, or nobody can tell.
    """
    deadline = time.monotonic() + REMOVE_S
    while True:
        told: Exception
        can_try = True
        try:
            line.api.remove_container(id_, force=True, v=True)
        except NotFound:
            return end_forgotten(id_)
        except APIError as error:  # being removed by someone else, or not dead yet
            told = error
        except ENGINE_FAULTS as error:
            told, can_try = error, line.renew()
        else:
            return end_forgotten(id_)
        if not can_try or time.monotonic() > deadline:
            raise WorkerError(
                f"container {id_[:12]} cannot be removed: {one_line(told)}"
            ) from told
        time.sleep(RETRY_S)
