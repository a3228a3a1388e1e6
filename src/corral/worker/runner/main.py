"""The process that holds user code: `python -m corral.worker.runner.main CELLS PARENT`.

PARENT is the process to end with, or the path of a socket to speak through: a runner
in a container has no parent it could see, nor has one in a sandbox, which says `-`.

It knows neither the manager nor the network, and may be killed at any moment.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from corral.errors import WorkerError
from corral.process.group import die_with_parent, end_own_group
from corral.worker.base import Worker
from corral.worker.protocol import (
    BrokenFrame,
    CancelFrame,
    ExecFrame,
    InitFrame,
    ReadyFrame,
    RunFrame,
    ShapeFrame,
    ToRunner,
    UnloadFrame,
    decode_to_runner,
    read_frame,
)
from corral.worker.runner import invoke
from corral.worker.runner.emit import Emitter
from corral.worker.runner.gpu_memory import WorkingSet
from corral.worker.runner.lane import RunnerLane, WorkerInstance, drop, serve_calls
from corral.worker.runner.model_slots import ModelSlots, SharedModelSlots
from corral.worker.runner.worker_class import load_worker_class
from corral.worker.shared_counters import SharedCells
from corral.worker.text import clean

INIT_FAILED = 3


class Runner:
    """Takes frames, and hands them to its lanes."""

    def __init__(self, frames_in: int, frames_out: int, cells: SharedCells) -> None:
        self._cells = cells
        self._emit = Emitter(frames_out)
        self._lanes = [RunnerLane(cells, self._emit)]
        self._init: SimpleQueue[InitFrame] = SimpleQueue()
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._instance: WorkerInstance | None = None
        reader = threading.Thread(target=self._read, args=(frames_in,), daemon=True)
        reader.start()

    def serve(self) -> int:
        """Work until the supervisor goes away; the exit code when init fails."""
        self._emit.capture.install()
        instance = self._start(self._init.get())
        if instance is None:
            return INIT_FAILED
        if not instance.is_shared:
            self._lanes[0].serve(instance)
        for lane in self._lanes:
            threading.Thread(target=lane.serve, args=(instance,), daemon=True).start()
        serve_calls(self._calls)
        return 0

    def _read(self, fd: int) -> None:
        # A thread of its own, so that cancel and the end of the supervisor are
        # seen while user code runs.
        try:
            with open(fd, "rb") as stream:
                while (body := read_frame(stream)) is not None:
                    self._take(decode_to_runner(body))
        finally:
            end_own_group()

    def _take(self, frame: ToRunner) -> None:
        if isinstance(frame, RunFrame):
            self._lanes[frame.lane].put(frame)
        elif isinstance(frame, CancelFrame):
            self._lanes[frame.lane].cancel(frame)
        elif isinstance(frame, ExecFrame):
            self._run_beside(frame)
        elif isinstance(frame, UnloadFrame):
            self._unload(frame)
        else:
            self._init.put(frame)

    def _run_beside(self, frame: ExecFrame) -> None:
        call = getattr(self._instance and self._instance.worker, "run_beside", None)
        if callable(call):
            call(frame.id, (frame.task_id, frame.attempt), frame.command)

    def _unload(self, frame: UnloadFrame) -> None:
        instance = self._instance
        if instance is None or not instance.is_shared:
            self._lanes[0].put(frame)
        else:
            # No lane shall wait for the others to be through with these.
            told = (instance.slots, frame.models)
            threading.Thread(target=drop, args=told, daemon=True).start()

    def _start(self, init: InitFrame) -> WorkerInstance | None:
        if init.log_limit is not None:
            self._emit.capture.limit(init.log_limit)
        try:
            kind = load_worker_class(init.worker_class)
            lanes = init.lanes if _shares(kind) else 1
            self._emit.send(ShapeFrame(lanes))
            self._instance = instance = self._make(kind, init, is_shared=lanes > 1)
            if lanes > 1:
                self._share(instance.worker, lanes, init.log_limit)
            if callable(start := getattr(instance.worker, "start", None)):
                start()
            sizes = instance.slots.sizes()
        except BaseException as error:  # user code: whatever it is, it is reported
            ours = isinstance(error, WorkerError)
            message = str(error) if ours else invoke.describe(error)
            self._emit.send(BrokenFrame(clean(message), invoke.trace(error)))
            return None
        self._emit.send(ReadyFrame(sizes))
        return instance

    def _make(
        self, kind: type[Any], init: InitFrame, *, is_shared: bool
    ) -> WorkerInstance:
        worker = kind(**init.params)
        room, tell = init.model_room, self._emit.send
        slots = ModelSlots(worker, room, tell=tell)
        if is_shared:
            slots = SharedModelSlots(worker, room, tell)
        return WorkerInstance(
            worker,
            invoke.bind(worker),
            invoke.has_batch(worker),
            slots,
            None if is_shared else WorkingSet(worker),
            is_shared,
        )

    def _share(self, worker: Any, lanes: int, log_limit: int | None) -> None:
        """Have more lanes than the first one."""
        worker.lanes, worker.in_main = lanes, self._calls.put
        self._emit.capture.share()
        for number in range(1, lanes):
            emit = self._emit.beside(number)
            if log_limit is not None:
                emit.capture.limit(log_limit)
            cells = self._cells.of_lane(number)
            self._lanes.append(RunnerLane(cells, emit))


def _shares(kind: type[Any]) -> bool:
    """Only of our base class the context is that of each thread."""
    return issubclass(kind, Worker) and bool(kind.shares_runner)


def _private_pipes() -> tuple[int, int]:
    """Frame pipes under numbers of their own, so that no print reaches them."""
    frames_in, frames_out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return frames_in, frames_out


def _private_sockets(path: str) -> tuple[int, int]:
    """Two connections, so that each side may block in one while it uses the other."""
    import socket  # most runners have pipes

    ends = []
    for _ in range(2):
        end = socket.socket(socket.AF_UNIX)
        end.connect(path)
        ends.append(end.detach())
    return ends[0], ends[1]


def main() -> None:
    cells, parent = SharedCells(sys.argv[1]), sys.argv[2]
    # User code must not see our arguments as its own.
    sys.argv = ["corral-runner"]
    if parent.isdecimal():
        die_with_parent(int(parent))
    is_piped = parent.isdecimal() or parent == "-"
    pipes = _private_pipes() if is_piped else _private_sockets(parent)
    code = Runner(*pipes, cells).serve()
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
