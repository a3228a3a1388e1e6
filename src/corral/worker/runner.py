"""The process that holds user code: `python -m corral.worker.runner CELLS PARENT`.

PARENT is the process to end with, or the path of a socket to speak through: a runner
in a container has no parent it could see.

It knows neither the manager nor the network, and may be killed at any moment.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

from msgspec import Raw

from corral.core.canary import CANARY
from corral.core.model import MODEL_TASK
from corral.errors import WorkerError
from corral.worker import canary, invoke, running
from corral.worker.base import Context
from corral.worker.capture import Capture
from corral.worker.cell import CURRENT, LIMIT, NONE, WHOLE, Cells
from corral.worker.emit import Emitter
from corral.worker.frame import (
    Broken,
    Cancel,
    Exec,
    Init,
    Item,
    Patience,
    Progress,
    Ready,
    Run,
    Unload,
    decode_to_runner,
    read_frame,
)
from corral.worker.gpu_memory import WorkingSet, give_back_cached
from corral.worker.load import load_worker_class
from corral.worker.process import die_with_parent, end_own_group
from corral.worker.shelf import Shelf
from corral.worker.text import clean

INIT_FAILED = 3
_OWN = frozenset({CANARY, MODEL_TASK})


class Runner:
    """Takes frames, runs batches, and is the channel of every task's context."""

    def __init__(self, frames_in: int, frames_out: int, cells: Cells) -> None:
        self._words = cells.words
        self._capture = Capture()
        self._emit = Emitter(frames_out, self._capture)
        self._inbox: SimpleQueue[Init | Run | Unload] = SimpleQueue()
        self._cancelled: dict[str, str] = {}
        self._on_stop: dict[str, Callable[[str], None]] = {}
        self._stop_lock = threading.Lock()
        self._worker: Any = None
        self._call: Any = None
        self._takes_batches = False
        self._shelf = Shelf(None)
        self._working = WorkingSet(None)
        self._unload: list[str] = []
        reader = threading.Thread(target=self._read, args=(frames_in,), daemon=True)
        reader.start()

    def serve(self) -> int:
        """Work until the supervisor goes away; the exit code when init fails."""
        self._capture.install()
        while True:
            frame = self._inbox.get()
            if isinstance(frame, Run):
                self._run(frame)
            elif isinstance(frame, Unload):
                self._drop(frame.models)
            elif not self._start(frame):
                return INIT_FAILED

    def _read(self, fd: int) -> None:
        # A thread of its own, so that cancel and the end of the supervisor are
        # seen while user code runs.
        try:
            with open(fd, "rb") as stream:
                while (body := read_frame(stream)) is not None:
                    frame = decode_to_runner(body)
                    if isinstance(frame, Cancel):
                        self._cancel(frame)
                        continue
                    if isinstance(frame, Exec):
                        self._run_beside(frame)
                        continue
                    # Here, not at the end of a batch: a late cancel of the last
                    # batch must not hit the same task's next attempt.
                    self._cancelled.clear()
                    self._inbox.put(frame)
        finally:
            end_own_group()

    def _cancel(self, frame: Cancel) -> None:
        with self._stop_lock:
            self._cancelled[frame.task_id] = frame.reason
            call = self._on_stop.get(frame.task_id)
        if call is not None:
            call(frame.reason)

    def _run_beside(self, frame: Exec) -> None:
        call = getattr(self._worker, "run_beside", None)
        if callable(call):
            call(frame.id, (frame.task_id, frame.attempt), frame.command)

    def _start(self, init: Init) -> bool:
        if init.log_limit is not None:
            self._capture.limit(init.log_limit)
        try:
            self._worker = load_worker_class(init.worker_class)(**init.params)
            self._call = invoke.bind(self._worker)
            self._takes_batches = invoke.has_batch(self._worker)
            self._shelf = Shelf(self._worker, init.model_room, tell=self._emit.send)
            self._working = WorkingSet(self._worker)
            if callable(start := getattr(self._worker, "start", None)):
                start()
            sizes = self._shelf.sizes()
        except BaseException as error:  # user code: whatever it is, it is reported
            ours = isinstance(error, WorkerError)
            message = str(error) if ours else invoke.describe(error)
            self._emit.send(Broken(clean(message), invoke.trace(error)))
            return False
        self._emit.send(Ready(sizes))
        return True

    def _drop(self, models: list[str]) -> None:
        try:
            self._shelf.drop(models)
        except Exception as error:  # user code, and no task that could fail of it
            text = invoke.trace(error) or invoke.describe(error)
            sys.stderr.write(f"cannot unload a model: {text}\n")

    def _run(self, batch: Run) -> None:
        self._emit.begin()
        items = batch.items
        whole = self._takes_batches and len(items) > 1 and not batch.solo
        whole = whole and not any(item.job_type in _OWN for item in items)
        self._unload = batch.unload
        if not (whole and self._run_whole(items)):
            self._run_each(items, flush_each=batch.solo)
        self._words[CURRENT] = NONE
        self._emit.end()

    def _run_each(self, items: list[Item], *, flush_each: bool) -> None:
        words, emit, call = self._words, self._emit, self._call
        for index, item in enumerate(items):
            words[CURRENT] = index
            if index > words[LIMIT]:
                return
            if item.task_id in self._cancelled:
                emit.add(invoke.cancelled(item))
                continue
            self._show(item)
            emit.open_task(item.task_id, item.attempt)
            is_own = item.job_type in _OWN
            is_measured = not is_own and self._working.is_known
            does = partial(self._answer, item) if is_own else call
            if is_measured:
                does = partial(self._measure, does)
            has_models = item.model or self._unload
            prepare = partial(self._have, item.model) if has_models else None
            outcome, size = invoke.run_one(does, item, prepare)
            emit.close_task()
            if is_measured and outcome.kind == "completed":
                outcome.memory_mb = self._measured()
            if item.variables and "CORRAL_GPUS" in item.variables:
                give_back_cached()
            emit.add(outcome, size)
            if flush_each:  # one of these has killed a runner before
                emit.flush()

    def _run_whole(self, items: list[Item]) -> bool:
        self._words[CURRENT] = WHOLE
        if self._words[LIMIT] < len(items) - 1 or self._cancelled:
            return False
        model = items[0].model
        if any(item.model != model for item in items):
            return False
        self._show(items[0])
        self._worker.contexts = [self._context(item) for item in items]
        self._emit.open_task(items[0].task_id, items[0].attempt)
        done = invoke.run_whole(self._worker, items, partial(self._have, model))
        self._emit.close_task()
        for outcome, size in done or ():
            self._emit.add(outcome, size)
        return done is not None

    def _have(self, model: str | None) -> float:
        """Drop what the order says, and have this model; the seconds its load took.

        Inside a task: what the hooks of a class raise fails it.
        """
        unload, self._unload = self._unload, []
        self._shelf.drop(name for name in unload if name != model)
        return self._shelf.need(model) if model else 0.0

    def _measure(self, does: Callable[[Any], Any], payload: Any) -> Any:
        # Here, where its model is loaded already.
        self._working.begin()
        return does(payload)

    def _measured(self) -> float | None:
        try:
            return self._working.end()
        except Exception as error:  # user code, and its task has ended well
            text = invoke.trace(error) or invoke.describe(error)
            sys.stderr.write(f"cannot tell what a task took: {text}\n")
            return None

    def _answer(self, item: Item, payload: Any) -> dict[str, Any]:
        """What is asked of every worker, whatever its class."""
        if item.job_type == CANARY:
            return canary.answer(self._worker, payload)
        return {"models": self._shelf.names}

    def _context(self, item: Item) -> Context:
        return Context(
            self,
            item.task_id,
            item.attempt,
            item.job_type,
            item.inputs,
            item.labels,
            item.model,
            item.variables,
            item.emitted,
        )

    def _show(self, item: Item) -> None:
        self._emit.output.restart(item.key)
        self._worker.context = context = self._context(item)
        self._on_stop.clear()
        if grace_s := getattr(self._worker, "stop_grace_s", 0.0):
            context.allow_to_stop(float(grace_s))
        running.show(context)

    def progress(self, task_id: str, attempt: int, fraction: float, text: str) -> None:
        share = min(max(fraction, 0.0), 1.0) if fraction == fraction else 0.0
        message = clean(str(text))
        self._emit.note_progress(Progress(task_id, attempt, share, message))

    def log(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        self._capture.feed("log", data + b"\n")

    def emit(self, task_id: str, attempt: int, value: Any) -> None:
        raw = invoke.encode_chunk(value)
        self._emit.output.emit((task_id, attempt), Raw(raw))

    def go_on(self, task_id: str, attempt: int, count: int) -> None:
        self._emit.output.go_on((task_id, attempt), count)

    def is_cancelled(self, task_id: str) -> bool:
        return task_id in self._cancelled

    def on_stop(self, task_id: str, call: Callable[[str], None]) -> None:
        with self._stop_lock:
            self._on_stop[task_id] = call
            reason = self._cancelled.get(task_id)
        if reason is not None:
            call(reason)

    def patience(self, task_id: str, attempt: int, seconds: float) -> None:
        self._emit.send(Patience(task_id, attempt, seconds))

    def decode(self, text: Any) -> Any:
        return invoke.decode_payload(text)


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
    cells, parent = Cells(sys.argv[1]), sys.argv[2]
    # User code must not see our arguments as its own.
    sys.argv = ["corral-runner"]
    if parent.isdecimal():
        die_with_parent(int(parent))
        pipes = _private_pipes()
    else:
        pipes = _private_sockets(parent)
    code = Runner(*pipes, cells).serve()
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
