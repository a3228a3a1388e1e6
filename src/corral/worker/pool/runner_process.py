"""One runner process as its supervisor sees it: frames in, frames out, its end.

A process takes one order at a time, or, when its class allows that, one in each lane.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from corral.core.models.model import MemoryLeak
from corral.process import group
from corral.wire.orders import ModelInMemory
from corral.worker.backpressure import Backpressure
from corral.worker.pool.transport import RunnerSpec as RunnerSpec
from corral.worker.pool.transport import open_transport
from corral.worker.protocol import (
    NO_LANE,
    BrokenFrame,
    ChunksFrame,
    DoneFrame,
    EndFrame,
    Frame,
    InitFrame,
    LogFrame,
    MemoryLeakFrame,
    ModelLoadFrame,
    ModelsFrame,
    ProgressFrame,
    ReadyFrame,
    ShapeFrame,
    StopGraceFrame,
    decode_from_runner,
    pack,
    read_frame,
)
from corral.worker.shared_counters import SharedCells

log = logging.getLogger(__name__)

SEND_TIMEOUT_S = 30.0
LAST_WORDS_S = 1.0
UNSENT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Exited:
    """The process has ended; `current` is what it was at."""

    code: int
    current: int


class Poke:
    """Something changed outside: look again."""


Word = (
    ProgressFrame
    | LogFrame
    | ChunksFrame
    | StopGraceFrame
    | ModelLoadFrame
    | ModelsFrame
)
Event = DoneFrame | EndFrame | Word | Exited | Poke
POKE = Poke()


class Lane:
    """What one order has of a runner."""

    def __init__(
        self, number: int, cells: SharedCells, backpressure: Backpressure
    ) -> None:
        self.number = number
        self.cells = cells
        self.backpressure = backpressure
        """Shut while too much of its runner's output has not reached the manager."""
        self.events: SimpleQueue[Event] = SimpleQueue()

    @property
    def runner(self) -> RunnerProcess:
        raise NotImplementedError

    def send(self, frame: Frame) -> None:
        frame.lane = self.number
        self.runner.send(frame)

    def kill(self) -> None:
        """End the whole runner: there is no other way to end what it is at."""
        self.runner.kill()

    def kill_on_purpose(self) -> None:
        """The same, where that is no fault of the runner's."""
        self.runner.note_stop()
        self.kill()

    def next_event(self, timeout_s: float) -> Event | None:
        try:
            return self.events.get(timeout=timeout_s)
        except Empty:
            return None

    def poke(self) -> None:
        self.events.put(POKE)


class _SideLane(Lane):
    def __init__(self, runner: RunnerProcess, number: int) -> None:
        super().__init__(number, runner.cells.of_lane(number), runner.backpressure)
        self._runner = runner

    @property
    def runner(self) -> RunnerProcess:
        return self._runner


class RunnerProcess(Lane):
    """Started at once; what it is given to call is called from the reader thread.

    It is its own first lane, and most classes have no other.
    """

    def __init__(
        self,
        spec: RunnerSpec,
        on_ready: Callable[[RunnerProcess], None],
        on_models: Callable[[], None] = lambda: None,
        lanes: int = 1,
        on_shape: Callable[[int], None] = lambda lanes: None,
    ) -> None:
        super().__init__(0, SharedCells.create(lanes), Backpressure(UNSENT_BYTES))
        self.lanes: list[Lane] = [self]
        self.fault: str | None = None
        self.trace: str | None = None
        self.is_ready = False
        self.is_dead = False
        self.was_used = False
        self.was_stopped = False
        """Killed on purpose: by a cancel, a timeout, a limit."""
        self.models: dict[str, ModelInMemory] = {}
        """What it has in memory, by its last word."""
        self.sizes: dict[str, float] = {}
        self.leak: MemoryLeak | None = None
        """Memory it lost, for which it is to be started anew once it is free."""
        self._on_ready = on_ready
        self._on_models = on_models
        self._on_shape = on_shape
        self._kill_lock = threading.Lock()
        self._send_lock = threading.Lock()
        self._is_reaped = False
        try:
            self._transport = open_transport(spec, self.cells)
        except BaseException:
            self.cells.unlink()
            raise
        self.pid = self._transport.pid
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        limits = (spec.log_limit, spec.model_room)
        self.send(InitFrame(spec.worker_class, spec.params, *limits, lanes))

    def note_stop(self) -> None:
        """It is about to be killed on purpose, which is no fault of its own."""
        self.was_stopped = True

    @property
    def runner(self) -> RunnerProcess:
        return self

    def send(self, frame: Frame) -> None:
        """Pass a frame on; a runner that cannot take it is killed.

        Its end shows as `Exited` among the events, as with any other death.
        """
        try:
            # Commands come from another thread than orders, and frames stay whole.
            with self._send_lock:
                group.write_all(self._transport.inlet, pack(frame), SEND_TIMEOUT_S)
        except (OSError, ValueError) as error:
            log.warning("runner %d cannot be written to: %s", self.pid, error)
            self.kill()

    def kill(self) -> None:
        """End the runner and all it has started."""
        with self._kill_lock:
            if not self._is_reaped:
                self._transport.kill()
        self.cells.unlink()

    def reap(self) -> int:
        """Block until the runner has ended, sweep what it left; the exit code."""
        self._transport.await_exit()
        with self._kill_lock:
            code = self._transport.finish()
            self._is_reaped = True
        # Results that are still in the pipe count; a stray grandchild that holds
        # the pipe open does not.
        self.backpressure.open()
        self._reader.join(LAST_WORDS_S)
        self.is_dead = True
        self.cells.unlink()
        for lane in self.lanes:
            lane.events.put(Exited(code, lane.cells.current))
        return code

    def _read(self) -> None:
        try:
            with self._transport.outlet as stream:
                while (body := read_frame(stream)) is not None:
                    self._take(decode_from_runner(body))
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("runner %d talks nonsense: %s", self.pid, error)
        finally:
            # A runner that no longer speaks is of no use, alive or not.
            self.kill()

    def _take(self, frame: Any) -> None:
        if isinstance(frame, ShapeFrame):
            self.lanes += [_SideLane(self, n) for n in range(1, frame.lanes)]
            self._on_shape(frame.lanes)
        elif isinstance(frame, ReadyFrame):
            self.cells.unlink()
            self.is_ready = True
            self.sizes = frame.sizes
            self._on_ready(self)
        elif isinstance(frame, BrokenFrame):
            self.fault, self.trace = frame.message, frame.traceback
        elif isinstance(frame, MemoryLeakFrame):
            self.leak = MemoryLeak(frame.model, frame.left_mb, frame.size_mb)
            self._on_models()
        else:
            if isinstance(frame, ModelsFrame):
                self.models = {model.name: model for model in frame.held}
                self._on_models()
            if isinstance(frame, LogFrame):
                # Not read on: its pipe fills, and in the end who prints waits.
                self.backpressure.enter(len(memoryview(frame.lines)))
            elif isinstance(frame, ChunksFrame):
                self.backpressure.enter(frame.size)
            if frame.lane != NO_LANE:
                self.lanes[frame.lane].events.put(frame)
