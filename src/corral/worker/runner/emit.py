"""Everything a runner says: outcomes, log lines and progress, gathered and flushed.

Outcomes of quick tasks share frames, but never wait behind a slow task: a small
thread flushes what the main thread, busy in user code, cannot.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec import Raw

from corral.wire.orders import AttemptOutcome
from corral.worker.protocol import (
    ChunksFrame,
    DoneFrame,
    EndFrame,
    Frame,
    LogFrame,
    ProgressFrame,
    pack,
)
from corral.worker.runner.capture import PIECE_LIMIT, Capture, Line

Key = tuple[str, int]

BURST = 64
"""So many frames may leave between two ticks; what comes then waits for the next."""
PART_BYTES = 64 << 10
FLUSH_S = 0.005
TICK_S = 0.02
LOG_S = 0.05
REST_S = 0.5
FLUSH_BYTES = 1024 * 1024
# About what a line takes in a frame beside its text.
LINE_COST = 40
_now = time.perf_counter
_encode = msgspec.json.Encoder().encode


class OutputSender:
    """Numbers and sends what tasks emit: at once while it is little, else gathered.

    Safe to use from any thread. Pieces of one attempt never overtake each other: they
    are numbered, gathered and sent under one lock, which is held while the supervisor
    takes no more.
    """

    def __init__(self, send: Callable[[Frame], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._numbers: dict[Key, int] = {}
        self._kept: dict[Key, ChunksFrame] = {}
        self._bytes = 0
        self._left = BURST

    def begin(self) -> None:
        """A batch starts: nothing of it has been emitted."""
        with self._lock:
            self._numbers.clear()

    def restart(self, key: Key) -> None:
        """This attempt is run once more, from its start."""
        with self._lock:
            self._flush()
            self._numbers.pop(key, None)

    def go_on(self, key: Key, count: int) -> None:
        """Count from here, unless something was emitted already."""
        with self._lock:
            self._numbers.setdefault(key, count)

    def emit(self, key: Key, value: Raw) -> None:
        with self._lock:
            number = self._numbers[key] = self._numbers.get(key, 0) + 1
            if self._left and not self._kept:
                self._left -= 1
                self._send(ChunksFrame(*key, number, [value]))
                return
            if (kept := self._kept.get(key)) is None:
                kept = self._kept[key] = ChunksFrame(*key, number, [])
            kept.values.append(value)
            self._bytes += len(memoryview(value))
            if self._bytes > PART_BYTES:
                self._flush()

    def tick(self) -> None:
        """Some time has passed: a burst may leave again."""
        if self._kept or not self._left:
            with self._lock:
                self._flush()
                self._left = BURST
        else:
            self._left = BURST

    def flush(self) -> None:
        if self._kept:
            with self._lock:
                self._flush()

    def _flush(self) -> None:
        kept, self._kept = self._kept, {}
        self._bytes = 0
        for chunks in kept.values():
            self._send(chunks)


class Flusher:
    """The thread that flushes what busy lanes cannot."""

    def __init__(self) -> None:
        self._emitters: list[Emitter] = []
        self._awake = threading.Event()
        threading.Thread(target=self._run, name="flusher", daemon=True).start()

    def add(self, emitter: Emitter) -> None:
        self._emitters.append(emitter)

    def wake(self) -> None:
        if not self._awake.is_set():
            self._awake.set()

    def _run(self) -> None:
        while self._awake.wait():
            time.sleep(TICK_S)
            busy = [emitter for emitter in self._emitters if emitter.tick()]
            if not busy:
                self._rest()

    def _rest(self) -> None:
        # Not after every batch: waking this thread for each would cost more than
        # the batch. A lane marks itself busy before it looks, we look after.
        self._awake.clear()
        if any(emitter.is_busy for emitter in self._emitters):
            self._awake.set()


class Emitter:
    """Writes frames to the supervisor from any thread, for the order of one lane."""

    def __init__(self, fd: int, flusher: Flusher | None = None) -> None:
        self._fd = fd
        self._lane = 0
        self.capture = Capture(self._flush_lines)
        """What the tasks of this lane print."""
        self._write_lock = threading.Lock()
        self.output = OutputSender(self.send)
        # Held from the taking of lines until they are written, or they would
        # overtake each other. Entered again when that makes something print.
        self._line_lock = threading.RLock()
        self._outcomes: list[AttemptOutcome] = []
        self._bytes = 0
        self._flushed = 0.0
        self._progress: ProgressFrame | None = None
        self._task: tuple[str, int] | None = None
        self._is_busy = False
        self._lines_at = 0.0
        self._flusher = flusher or Flusher()
        self._flusher.add(self)

    def beside(self, lane: int) -> Emitter:
        """Another one, for another lane of this process."""
        # With a thread each, their waking alone would keep the others from computing.
        emitter = Emitter(self._fd, self._flusher)
        emitter._lane = lane
        # One pipe has one lock: frames stay whole.
        emitter._write_lock = self._write_lock
        return emitter

    def send(self, frame: Frame) -> None:
        frame.lane = frame.lane or self._lane
        self._write(pack(frame))

    def open_task(self, task_id: str, attempt: int) -> None:
        self._task = (task_id, attempt)
        self.capture.open()

    def close_task(self) -> None:
        if self.capture.is_dirty:
            with self._line_lock:
                self._send_lines(self.capture.close())
        else:
            self.capture.close()
        if self._progress is not None:
            self._send_progress()
        self.output.flush()
        self._task = None

    def note_progress(self, progress: ProgressFrame) -> None:
        """Only the latest counts; it leaves with the next flush of lines."""
        self._progress = progress

    def begin(self) -> None:
        """A batch starts."""
        self._flushed = _now()
        self.output.begin()
        self._is_busy = True
        self._flusher.wake()

    def add(self, outcome: AttemptOutcome, size: int = 0) -> None:
        self._outcomes.append(outcome)
        self._bytes += size
        if self._bytes > FLUSH_BYTES or _now() - self._flushed > FLUSH_S:
            self.flush()

    def end(self) -> None:
        """The batch is over: everything that is left, and the end mark."""
        self._is_busy = False
        self.flush(pack(EndFrame(lane=self._lane)))

    def flush(self, tail: bytes = b"") -> None:
        # Taken under the lock: an end mark must not overtake outcomes that the
        # other thread has taken but not written yet.
        with self._write_lock:
            outcomes, self._outcomes = self._outcomes, []
            self._bytes = 0
            head = pack(DoneFrame(outcomes, lane=self._lane)) if outcomes else b""
            self._write_locked(head + tail)
            self._flushed = _now()

    def tick(self) -> bool:
        """Flush what is due; is there anything to look after still?"""
        self.output.tick()
        if self._outcomes:
            self.flush()
        now = _now()
        if now - self._lines_at >= LOG_S:
            self._lines_at = now
            self._flush_words()
        return self._is_busy or now - self._flushed <= REST_S

    @property
    def is_busy(self) -> bool:
        return self._is_busy

    def _flush_words(self) -> None:
        if self._progress is not None:
            self._send_progress()
        if self.capture.is_dirty:
            self._flush_lines()

    def _flush_lines(self) -> None:
        with self._line_lock:
            self._send_lines(self.capture.take())

    def _send_lines(self, lines: Sequence[Line]) -> None:
        # Blocks while the supervisor takes no more; who prints then waits for it.
        if self._task is not None:
            for count, part in _frames(lines):
                self.send(LogFrame(*self._task, count, Raw(_encode(part))))

    def _send_progress(self) -> None:
        progress, self._progress = self._progress, None
        if progress is not None:
            self.send(progress)

    def _write(self, data: bytes) -> None:
        with self._write_lock:
            self._write_locked(data)

    def _write_locked(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]


def _frames(lines: Sequence[Line]) -> Iterator[tuple[int, list[Line]]]:
    """Lines in parts of the size of a frame, each with how many it has."""
    part: list[Line] = []
    count = size = 0
    for line in lines:
        if part and size + len(line[2]) > PIECE_LIMIT:
            yield count, part
            part, count, size = [], 0, 0
        part.append(line)
        count += line[2].count("\n") + 1
        size += len(line[2]) + LINE_COST
    if part:
        yield count, part
