"""One more command in a container that runs: the shell of a running job."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from typing import Any

import psutil

from corral.worker.container.connection import ENGINE_FAULTS
from corral.worker.container.output import ContainerStream
from corral.worker.container.processes import ContainerProcesses
from corral.worker.isolation.process import OnOutput

log = logging.getLogger(__name__)

LOST = 125
"""Exit code where the engine does not know one any more."""
END_S = 10.0
KNOWN_S = 10.0
LOOK_S = 0.05


class ContainerExec:
    """Made by `RunningContainer.exec`; it ends with the container at the latest."""

    def __init__(
        self,
        api: Any,
        id_: str,
        container: str,
        stream: ContainerStream,
        on_output: OnOutput,
    ) -> None:
        self._api = api
        self._id = id_
        self._processes = ContainerProcesses(container)
        self._code: int | None = None
        self._ended = threading.Event()
        threading.Thread(
            target=self._watch, args=(stream, on_output), daemon=True
        ).start()

    @property
    def pid(self) -> int:
        """0 where the engine does not tell, or not yet."""
        with contextlib.suppress(*ENGINE_FAULTS):
            return int(self._api.exec_inspect(self._id).get("Pid") or 0)
        return 0

    @property
    def is_running(self) -> bool:
        return not self._ended.is_set()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The exit code, once all output has been passed on; None while it runs."""
        return self._code if self._ended.wait(timeout_s) else None

    def signal(self, number: int) -> None:
        """Signal the command and what it has started, where this machine sees it."""
        first = self.pid
        if not first or not self._processes.has(first):
            return
        with contextlib.suppress(psutil.Error):
            below = psutil.Process(first).children(recursive=True)
            for pid in [first, *(child.pid for child in below)]:
                self._processes.send_to(pid, signal.Signals(number))

    def stop(self, grace_s: float) -> None:
        """SIGTERM, then SIGKILL; what escapes ends with the container."""
        if grace_s > 0:
            self.signal(signal.SIGTERM)
            self._ended.wait(grace_s)
        if self.is_running:
            self.signal(signal.SIGKILL)
            self._ended.wait(END_S)

    def _watch(self, stream: ContainerStream, on_output: OnOutput) -> None:
        try:
            stream.pass_on(on_output)
        except (OSError, ValueError) as error:
            log.warning("output of a command in a container is cut: %s", error)
        finally:
            self._collect()

    def _collect(self) -> None:
        code = None
        give_up_at = time.monotonic() + KNOWN_S
        with contextlib.suppress(*ENGINE_FAULTS):
            # Its output has ended; until the engine has seen that, its code is a 0
            # that says nothing.
            while (told := self._api.exec_inspect(self._id)).get("Running"):
                if time.monotonic() > give_up_at:
                    told = {}
                    break
                time.sleep(LOOK_S)
            code = told.get("ExitCode")
        self._code = LOST if code is None else int(code)
        self._ended.set()
