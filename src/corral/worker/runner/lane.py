"""The orders of a runner, one after the other: most runners have one such lane, on
their main thread; where a class shares its runner, each lane has a thread of its own.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from corral.core.tasks.job_type import CANARY, MODEL_TASK
from corral.wire.orders import AttemptOutcome, Item
from corral.worker.base import Context, at_hand
from corral.worker.protocol import (
    CancelFrame,
    DoneFrame,
    LeftFilesFrame,
    ProgressFrame,
    RunFrame,
    StopGraceFrame,
    UnloadFrame,
)
from corral.worker.runner import current_task, invoke
from corral.worker.runner.emit import Emitter
from corral.worker.runner.gpu_memory import WorkingSet, give_back_cached
from corral.worker.runner.model_slots import ModelSlots
from corral.worker.shared_counters import CURRENT, LIMIT, NONE, WHOLE, SharedCells
from corral.worker.text import clean

if TYPE_CHECKING:
    from corral.worker.runner.profile import Profile


_VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CORRAL_GPUS")
_OWN = frozenset({CANARY, MODEL_TASK})


@dataclass(frozen=True, slots=True)
class WorkerInstance:
    """The one instance of the user's class, and what all lanes have with it."""

    worker: Any
    call: Callable[[Any], Any]
    takes_batches: bool
    slots: ModelSlots
    working: WorkingSet | None
    """None where nobody can tell which task took what: several run at a time."""
    is_shared: bool = False


class RunnerLane:
    """Runs batches, and is the channel of the contexts of their tasks."""

    def __init__(self, cells: SharedCells, emit: Emitter) -> None:
        self._words = cells.words
        self._emit = emit
        self._capture = emit.capture
        self._inbox: SimpleQueue[RunFrame | UnloadFrame] = SimpleQueue()
        self._cancelled: dict[str, str] = {}
        self._on_stop: dict[str, Callable[[str], None]] = {}
        self._stop_lock = threading.Lock()
        self._unload: list[str] = []
        self._is_shared = False

    def put(self, frame: RunFrame | UnloadFrame) -> None:
        """To be done when what was put before is through."""
        # Here, not at the end of a batch: a late cancel of the last batch must not
        # hit the same task's next attempt.
        self._cancelled.clear()
        self._inbox.put(frame)

    def cancel(self, frame: CancelFrame) -> None:
        with self._stop_lock:
            self._cancelled[frame.task_id] = frame.reason
            call = self._on_stop.get(frame.task_id)
        if call is not None:
            call(frame.reason)

    def serve(self, instance: WorkerInstance) -> None:
        """Work on what is put, for ever."""
        self._instance = instance
        self._worker, self._slots = instance.worker, instance.slots
        self._is_shared = instance.is_shared
        if instance.is_shared:
            self._capture.claim()
            self._slots.tell_by(self._emit.send)
        while True:
            frame = self._next()
            if isinstance(frame, RunFrame):
                self._run(frame)
            else:
                drop(self._slots, frame.models)

    def _next(self) -> RunFrame | UnloadFrame:
        """The next frame; while none comes, memory that seems lost is looked at."""
        slots = self._slots
        while (wait_s := slots.leak_wait_s()) is not None:
            with suppress(Empty):
                return self._inbox.get(timeout=wait_s)
            if (leak := slots.leak()) is not None:
                self._emit.send(leak)
        return self._inbox.get()

    def _run(self, batch: RunFrame) -> None:
        self._emit.begin()
        items = batch.items
        whole = self._instance.takes_batches and len(items) > 1 and not batch.solo
        whole = whole and not any(i.job_type in _OWN or i.profile for i in items)
        self._unload = batch.unload
        done = self._run_whole(items) if whole else ()
        if len(done) < len(items):
            self._run_each(items, done, flush_each=batch.solo)
        self._words[CURRENT] = NONE
        current_task.show(())
        self._emit.end()
        self._look()

    def _run_each(
        self, items: list[Item], done: Collection[int], *, flush_each: bool
    ) -> None:
        words, emit, call = self._words, self._emit, self._instance.call
        working, slots = self._instance.working, self._slots
        for index, item in enumerate(items):
            words[CURRENT] = index
            if index > words[LIMIT]:
                return
            if index in done:
                continue
            if item.task_id in self._cancelled:
                emit.add(invoke.cancelled(item))
                continue
            self._show(item)
            emit.open_task(item.task_id, item.attempt)
            is_own = item.job_type in _OWN
            is_measured = not is_own and working is not None and working.is_known
            does = partial(self._answer, item) if is_own else call
            profile = _profile(item.profile) if item.profile and not is_own else None
            if profile is not None:
                does = partial(profile.call, does)
            if is_measured:
                does = partial(self._measure, does)
            has_models = item.model or self._unload
            have = partial(self._have, item.model, item.edition)
            prepare = have if has_models else None
            outcome, size = invoke.run_one(does, item, prepare)
            if prepare is not None:
                slots.leave()
            emit.close_task()
            if profile is not None:
                emit.send(LeftFilesFrame(item.task_id, item.attempt, profile.files()))
            if is_measured and outcome.kind == "completed":
                outcome.memory_mb = self._measured()
            if item.variables and "CORRAL_GPUS" in item.variables:
                give_back_cached()
            emit.add(outcome, size)
            if flush_each:  # one of these has killed a runner before
                emit.flush()

    def _run_whole(self, items: list[Item]) -> set[int]:
        """Have them done together; which of them were."""
        done: set[int] = set()
        self._words[CURRENT] = WHOLE
        if self._words[LIMIT] < len(items) - 1 or self._cancelled:
            return done
        model = items[0].model
        if any(item.model != model for item in items):
            return done
        self._show_all(items)
        emit, at = self._emit, items[0].key
        emit.open_task(*at)

        def tell(place: int, outcome: AttemptOutcome) -> None:
            nonlocal at
            done.add(place)
            if items[place].key == at:
                # What is printed from now on is another's: this one has ended.
                emit.close_task()
                left = (i for i in range(len(items)) if i not in done)
                at = items[next(left, place)].key
                emit.open_task(*at)
            emit.output.flush()
            emit.send(DoneFrame([outcome], is_early=True))

        have = partial(self._have, model, items[0].edition)
        settled = invoke.run_whole(self._worker, items, have, tell)
        self._slots.leave()
        emit.close_task()
        for outcome in settled or ():
            emit.add(outcome, invoke.size_of(outcome))
        return set(range(len(items))) if settled else done

    def _have(self, model: str | None, edition: str) -> float:
        """Drop what the order says, and have this model; the seconds its load took.

        Inside a task: what the hooks of a class raise fails it.
        """
        unload, self._unload = self._unload, []
        self._slots.drop([name for name in unload if name != model])
        return self._slots.need(model, edition) if model else 0.0

    def _measure(self, does: Callable[[Any], Any], payload: Any) -> Any:
        # Here, where its model is loaded already.
        if self._instance.working is not None:
            self._instance.working.begin()
        return does(payload)

    def _measured(self) -> float | None:
        try:
            return self._instance.working.end() if self._instance.working else None
        except Exception as error:  # user code, and its task has ended well
            _complain("cannot tell what a task took", error)
            return None

    def _look(self) -> None:
        try:
            self._slots.look()
        except Exception as error:  # user code, and its tasks have ended
            _complain("cannot tell more of a model", error)

    def _answer(self, item: Item, payload: Any) -> dict[str, Any]:
        """What is asked of every worker, whatever its class."""
        if item.job_type == CANARY:
            return answer_canary(self._worker, payload)
        return {"models": self._slots.names}

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
            item.request_id,
            item.traceparent,
        )

    def _show(self, item: Item) -> None:
        """Let user code see which task it is at."""
        self._emit.output.restart(item.key)
        context = self._context(item)
        self._on_stop.clear()
        if grace_s := getattr(self._worker, "stop_grace_s", 0.0):
            context.allow_to_stop(float(grace_s))
        if self._is_shared:
            at_hand.set([context])
        else:
            self._worker.context = context
            current_task.show([context])

    def _show_all(self, items: list[Item]) -> None:
        """Let user code see which batch it is at."""
        self._show(items[0])
        contexts = [self._context(item) for item in items]
        if self._is_shared:
            at_hand.set(contexts)
        else:
            self._worker.contexts = contexts
            current_task.show(contexts)

    def progress(self, task_id: str, attempt: int, fraction: float, text: str) -> None:
        share = min(max(fraction, 0.0), 1.0) if fraction == fraction else 0.0
        message = clean(str(text))
        self._emit.note_progress(ProgressFrame(task_id, attempt, share, message))

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
        self._emit.send(StopGraceFrame(task_id, attempt, seconds))

    def decode(self, text: Any) -> Any:
        return invoke.decode_payload(text)


def _profile(kind: str) -> Profile:
    # Late: hardly any runner needs it.
    from corral.worker.runner.profile import Profile

    return Profile(kind)


def serve_calls(calls: SimpleQueue[Callable[[], None]]) -> None:
    """Make the calls that lanes leave to this thread, for ever."""
    while True:
        call = calls.get()
        try:
            call()
        except Exception as error:  # user code: its next call may do better
            _complain("a call in the main thread failed", error)


def drop(slots: ModelSlots, models: list[str]) -> None:
    try:
        slots.drop(models)
    except Exception as error:  # user code, and no task that could fail of it
        _complain("cannot unload a model", error)


def _complain(what: str, error: Exception) -> None:
    text = invoke.trace(error) or invoke.describe(error)
    sys.stderr.write(f"{what}: {text}\n")


def answer_canary(worker: Any, payload: Any) -> dict[str, Any]:
    """What the worker's process is; raises what the class's own `canary` raises."""
    begin = time.perf_counter()
    check = getattr(worker, "canary", None)
    said = check() if callable(check) else None
    kind = type(worker)
    return {
        "nonce": payload.get("nonce") if isinstance(payload, dict) else None,
        "worker_class": f"{kind.__module__}:{kind.__qualname__}",
        "pid": os.getpid(),
        "gpus": {name: os.environ[name] for name in _VISIBLE if os.environ.get(name)},
        "seconds": round(time.perf_counter() - begin, 6),
        "canary": said,
    }
