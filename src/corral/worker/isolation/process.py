"""A job that was started, as its caller sees it: output, end, stop.

Where its guardian was killed, what is left of it is ended from here, as a last resort.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from corral.errors import WorkerError
from corral.worker.isolation import cgroup
from corral.worker.isolation.cgroup import Groups
from corral.worker.isolation.job import Level, SandboxJob
from corral.worker.isolation.variables import MARK

log = logging.getLogger(__name__)


_PATIENCE_S = 10.0
OnOutput = Callable[[str, bytes], None]
CHUNK = 1 << 18
START_S = 60.0
# The guardian gives up on processes the kernel does not end before this.
_END_S = 40.0
_KILLED = 128 + signal.SIGKILL


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Where a job runs; a command that was run beside it is not the whole of it."""

    job: SandboxJob
    level: Level
    groups: Groups
    is_whole: bool = True


class RunningJob:
    """Made by `start`. Every method may be called from any thread, at any time."""

    def __init__(
        self,
        scene: JobPlace,
        guardian: subprocess.Popen[bytes],
        outputs: dict[str, int],
        on_output: OnOutput,
    ) -> None:
        self.scene = scene
        self.pid = 0
        self.oom_killed = False
        self.is_stopping = False
        self.is_lost = False
        """Was its guardian or its sandbox killed? Nobody knows how it would have ended.
        """
        self.peak_memory_mb = 0.0
        self._guardian = guardian
        self._lock = threading.Lock()
        self._known = threading.Event()
        self._gone = threading.Event()
        self._drained = threading.Event()
        self._fault: str | None = None
        self._end: dict[str, Any] | None = None
        self._left: Sequence[int] = ()
        self._beside: list[RunningJob] = []
        self._readers = [
            threading.Thread(target=_read, args=(name, fd, on_output), daemon=True)
            for name, fd in outputs.items()
        ]
        for reader in self._readers:
            reader.start()
        threading.Thread(target=self._watch, daemon=True).start()

    @property
    def isolation(self) -> str:
        return self.scene.level.value

    @property
    def is_running(self) -> bool:
        return not self._gone.is_set()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The exit code (128 + N for signal N), None while it still runs.

        By then no process of the job is left and all output was passed on.
        """
        if not self._drained.wait(timeout_s):
            return None
        code = self._end["code"] if self._end else None
        return _KILLED if code is None else int(code)

    def stop(self, grace_s: float) -> None:
        """Ask every process of the job to end, kill who is there after the grace.

        Returns when nothing of it is left; its last output may still be on its way.

        Raises:
            WorkerError: the kernel does not end a process.
        """
        self.is_stopping = True
        self.tell({"do": "stop", "grace_s": max(0.0, grace_s)})
        if not self._gone.wait(grace_s + _END_S):
            self._guardian.kill()  # a stopped or starved one; the rest is swept
            self._gone.wait()
        if self._left:
            raise WorkerError(f"processes that cannot be ended: {self._left}")

    def kill(self) -> None:
        """End every process of the job; returns at once."""
        self.is_stopping = True
        self.tell({"do": "stop", "grace_s": 0.0})

    def signal(self, number: int) -> None:
        """Send a signal to every process of the job."""
        self.tell({"do": "signal", "number": int(number)})

    def exec(self, argv: Sequence[str], on_output: OnOutput) -> RunningJob:
        """Run another command where this job runs; it ends with it at the latest.

        Raises:
            WorkerError: the job has ended, or the command is not there.
        """
        from corral.worker.isolation.start import start_beside

        if not self.is_running:
            raise WorkerError("the job has ended")
        other = start_beside(self, tuple(argv), on_output)
        with self._lock:
            self._beside.append(other)
            has_ended = self._gone.is_set()
        if has_ended:
            other.stop(0.0)
        return other

    def await_start(self) -> None:
        """Block until the command runs.

        Raises:
            WorkerError: it cannot be run; nothing of it is left.
        """
        if not self._known.wait(START_S):
            self.stop(0.0)
            raise WorkerError("the command did not start in time")
        if self.pid and self._fault is None:
            return
        self._gone.wait()
        if self._fault is None and (self.is_lost or self._was_killed):
            text = "what was to run the script was killed before it could"
            raise WorkerError(text, lost=True)
        raise WorkerError(self._fault or "the command could not be started")

    @property
    def _was_killed(self) -> bool:
        code = self._end["code"] if self._end else None
        return not self.oom_killed and (code is None or int(code) == _KILLED)

    def tell(self, order: dict[str, Any]) -> None:
        """Pass one order on to the guardian; a dead one shows elsewhere."""
        assert self._guardian.stdin is not None
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._guardian.stdin.write(json.dumps(order).encode() + b"\n")
            self._guardian.stdin.flush()

    def _watch(self) -> None:
        assert self._guardian.stdin is not None
        assert self._guardian.stdout is not None
        for line in self._guardian.stdout:
            self._hear(json.loads(line))
        self._guardian.wait()
        if self._end is None:
            self.is_lost = True
            self._left = self._sweep()
        self._end_others()
        self._gone.set()
        self._known.set()
        for reader in self._readers:
            reader.join()
        self._guardian.stdout.close()
        with self._lock, contextlib.suppress(OSError):
            self._guardian.stdin.close()
        self._drained.set()

    def _sweep(self) -> list[int]:
        log.error("the guardian of job %s was killed", self.scene.job.mark)
        if not self.scene.is_whole:
            return []  # the mark is the job's, which goes on
        return end_strays(self.scene.job.mark, self.scene.groups)

    def _hear(self, word: dict[str, Any]) -> None:
        if "ready" in word:
            self.pid = word["ready"]
        elif "failed" in word:
            self._fault = word["failed"]
        elif "end" in word:
            self._end = word["end"]
            self._left = self._end["left"]
            self.oom_killed = self._end["oom"]
            self.is_lost = self._end["lost"] and not self.oom_killed
            self.peak_memory_mb = round(self._end["peak_mb"], 1)
        if "end" not in word:
            self._known.set()

    def _end_others(self) -> None:
        with self._lock:
            others, self._beside = self._beside, []
            # From here on `exec` ends what it has started by itself.
            self._gone.set()
        for other in others:
            other.stop(0.0)


def _read(name: str, fd: int, on_output: OnOutput) -> None:
    # Read no faster than it is taken: the pipe then holds the writer back.
    with open(fd, "rb", buffering=0) as stream:
        while data := stream.read(CHUNK):
            on_output(name, data)


def first_of(pid: int) -> int:
    """The first process of the sandbox that the wrapper `pid` has made."""
    path = f"/proc/{pid}/task/{pid}/children"
    with contextlib.suppress(OSError), open(path, encoding="ascii") as file:
        if found := file.read().split():
            return int(found[0])
    import psutil

    try:
        return int(psutil.Process(pid).children()[0].pid)
    except (psutil.Error, IndexError):
        raise WorkerError("the job has ended") from None


def pipe() -> tuple[int, int]:
    """A pipe with room for a burst, but not for all a user may have in pipes."""
    import fcntl

    ends = os.pipe()
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, 1 << 18)
    return ends


def end_strays(mark: str, groups: cgroup.Groups) -> list[int]:
    """Kill by control group and by mark until a look finds nobody; who is left."""
    give_up_at = time.monotonic() + _PATIENCE_S
    while True:
        left = [p for p in _find(mark, cgroup.members(groups)) if _is_alive(p)]
        if not left or time.monotonic() > give_up_at:
            cgroup.clear(groups)
            return [process.pid for process in left]
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.01)


def _find(mark: str, grouped: set[int]) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid in grouped or process.environ().get(MARK) == mark:
                yield process


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
