"""Calls the user's code for one payload or a batch, and turns what happens into
outcomes. Nothing user code raises or returns gets past here.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import msgspec
from msgspec import Raw

from corral.core.tasks.outcome import OUT_OF_MEMORY
from corral.errors import WorkerError
from corral.wire.orders import AttemptError, AttemptOutcome, Item
from corral.worker.base import Failure, Lost, Worker
from corral.worker.text import TRACEBACK_LIMIT, clean

RESULT_LIMIT = 16 * 1024 * 1024
CHUNK_LIMIT = 256 * 1024
# The runner is started with -m, so its own module is __main__.
_OURS = frozenset(
    {
        __name__,
        "__main__",
        "corral.worker.base",
        "corral.worker.function",
        "corral.worker.runner.worker_class",
        "corral.worker.runner.profile",
        "corral.worker.runner.lane",
        "corral.worker.runner.main",
        "corral.worker.runner.model_slots",
    }
)

_encode = msgspec.json.Encoder(enc_hook=lambda value: _plain(value)).encode
_decode = msgspec.json.Decoder().decode
_clock = time.perf_counter


class _Failure(Exception):
    """A failure told by value: a bad result, or an envelope that says failed."""

    def __init__(self, kind: str, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.is_final = is_final


def _plain(value: Any) -> Any:
    """Numbers and arrays of numeric libraries turn into plain ones."""
    if callable(getattr(value, "tolist", None)):
        return value.tolist()
    raise TypeError(f"JSON has no form for a value of type {type(value).__name__}")


def bind(worker: Any) -> Callable[[Any], Any]:
    """The one call that does a task: `_run` unwrapped, else `run`, else a batch of 1.

    Raises:
        WorkerError: the class has none of the three.
    """
    if callable(getattr(worker, "_run", None)):
        inner = worker._run
        return lambda payload: unwrap(inner(payload))
    run = getattr(type(worker), "run", None)
    if callable(run) and run is not Worker.run:
        return worker.run  # type: ignore[no-any-return]
    if has_batch(worker):
        batch = worker.run_batch
        return lambda payload: _only(batch([payload]))
    name = type(worker).__name__
    raise WorkerError(f"worker class {name} defines none of run, _run, run_batch")


def has_batch(worker: Any) -> bool:
    return callable(getattr(worker, "run_batch", None))


def unwrap(envelope: Any) -> Any:
    """The bare output of `{"status", "output"}`; anything else is output itself."""
    if not isinstance(envelope, dict) or "status" not in envelope:
        return envelope
    status = str(envelope["status"]).lower()
    output = envelope.get("output")
    if status == "completed":
        return output
    if status in ("failed", "error"):
        raise _Failure("failed", _reason(envelope, output))
    raise _Failure(
        "bad_result",
        f"the worker answered with status {envelope['status']!r}; it must be "
        "completed, failed or error",
    )


def _reason(envelope: dict[str, Any], output: Any) -> str:
    for place in (output, envelope):
        if isinstance(place, dict):
            for name in ("error", "message"):
                if place.get(name):
                    return str(place[name])
    return str(output) if output else "the worker answered that the task failed"


def decode_payload(raw: Any) -> Any:
    """The payload's value; what msgspec is too strict for, json reads."""
    try:
        return _decode(raw)
    except msgspec.MsgspecError as error:
        try:
            return json.loads(bytes(raw), parse_constant=_refuse)
        except (ValueError, RecursionError):
            text = f"the payload is not JSON: {error}"
            raise _Failure("bad_payload", text, is_final=True) from None


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def encode_result(output: Any) -> bytes:
    """The result as JSON, or a failure that says what is wrong with it."""
    return _encoded(output, RESULT_LIMIT, "the result ({}) cannot be kept")


def encode_chunk(value: Any) -> bytes:
    """A piece of output as JSON, or a failure as for a result."""
    return _encoded(value, CHUNK_LIMIT, "output ({}) cannot be emitted")


def _encoded(output: Any, limit: int, complaint: str) -> bytes:
    try:
        raw = _encode(output)
        # NaN and the infinities come out as null: look closer when there is one.
        if b"null" in raw:
            json.dumps(msgspec.to_builtins(output, enc_hook=_plain), allow_nan=False)
    except UnicodeEncodeError:
        problem = "it has a lone surrogate, which is not valid Unicode"
    except RecursionError:
        problem = "it is nested too deeply, or contains itself"
    except Exception as error:  # a result's own code may raise anything
        problem = str(error) or type(error).__name__
    else:
        if len(raw) <= limit:
            return raw
        problem = f"it takes {len(raw)} bytes, more than the {limit} allowed"
    said = complaint.format(type(output).__name__)
    raise _Failure("bad_result", f"{said}: {problem}")


def fault_of(error: BaseException) -> AttemptError:
    """What to tell about an exception: message, and traceback of user code."""
    if isinstance(error, _Failure | Failure):
        return AttemptError(error.kind, clean(str(error)), is_final=error.is_final)
    kind = OUT_OF_MEMORY if _is_out_of_memory(error) else "exception"
    return AttemptError(kind, describe(error), trace(error))


def _is_out_of_memory(error: BaseException) -> bool:
    """Of a card; frameworks have a class for it, all by the same name."""
    return any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)


def describe(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # a broken __str__ must not hide the exception itself
        text = "(its message cannot be shown)"
    name = type(error).__name__
    return clean(f"{name}: {text}" if text else name)


def trace(error: BaseException) -> str | None:
    """The traceback without our own frames above the user's."""
    try:
        shown = traceback.format_exception(
            type(error), error, _skip_ours(error.__traceback__)
        )
    except Exception:  # formatting runs user code (__str__, __repr__)
        return None
    return clean("".join(shown), TRACEBACK_LIMIT)


def _skip_ours(where: TracebackType | None) -> TracebackType | None:
    while where is not None and where.tb_frame.f_globals.get("__name__") in _OURS:
        where = where.tb_next
    return where


def _only(outputs: Any) -> Any:
    if isinstance(outputs, Iterator):
        outputs = [output for _, output in outputs]
    if not isinstance(outputs, list | tuple) or len(outputs) != 1:
        raise _Failure("bad_result", "run_batch did not return one output per payload")
    if isinstance(outputs[0], BaseException):
        raise outputs[0]
    return outputs[0]


def run_one(
    call: Callable[[Any], Any],
    item: Item,
    prepare: Callable[[], float] | None = None,
) -> tuple[AttemptOutcome, int]:
    """Do one task; its outcome and the size of its result.

    `prepare` comes first, and its seconds are not the task's.
    """
    load_s = 0.0
    started, begin = time.time(), _clock()
    try:
        if prepare is not None:
            load_s = prepare()
            started, begin = time.time(), _clock()
        raw = encode_result(call(decode_payload(item.payload)))
    except BaseException as error:  # SystemExit too: it ends a task, not the runner
        outcome = failed(item, fault_of(error), started, _clock() - begin)
        outcome.load_s = load_s
        if isinstance(error, Lost):
            outcome.kind = "lost"
        return _with_output(outcome, error)
    outcome = AttemptOutcome(
        item.task_id, item.attempt, "completed", Raw(raw), None, started,
        _clock() - begin, load_s,
    )  # fmt: skip
    return outcome, len(raw)


def _with_output(
    outcome: AttemptOutcome, error: BaseException
) -> tuple[AttemptOutcome, int]:
    """A failure that has something to show keeps it, when it can be kept."""
    output = error.output if isinstance(error, Failure) else None
    if output is None:
        return outcome, 0
    try:
        raw = encode_result(output)
    except _Failure:
        return outcome, 0
    outcome.result = Raw(raw)
    return outcome, len(raw)


def run_whole(
    worker: Any,
    items: list[Item],
    prepare: Callable[[], float],
    tell: Callable[[int, AttemptOutcome], None],
) -> list[AttemptOutcome] | None:
    """Do all with `run_batch`; None when it failed and the rest must be tried alone.

    What it does not return, but yields, goes to `tell`, with its place.
    """
    load_s = 0.0
    try:
        load_s = prepare()
        started, begin = time.time(), _clock()
        outputs = worker.run_batch([decode_payload(item.payload) for item in items])
        if isinstance(outputs, Iterator):
            for place, output in outputs:
                took_s = _clock() - begin
                outcome = _settle(items[place], output, started, took_s)
                outcome.load_s, load_s = load_s, 0.0
                tell(place, outcome)
            return []
        if not isinstance(outputs, list | tuple) or len(outputs) != len(items):
            return None
    except BaseException:  # one by one, the culprit shows itself with its traceback
        return None
    each_s = (_clock() - begin) / len(items)
    settled = [
        _settle(item, output, started, each_s)
        for item, output in zip(items, outputs, strict=True)
    ]
    settled[0].load_s = load_s
    return settled


def _settle(
    item: Item, output: Any, started: float, duration_s: float
) -> AttemptOutcome:
    try:
        if isinstance(output, BaseException):
            raise output
        raw = encode_result(output)
    except BaseException as error:  # run_batch may hand over any exception
        outcome = failed(item, fault_of(error), started, duration_s)
        if isinstance(error, Lost):
            outcome.kind = "lost"
        return outcome
    return AttemptOutcome(
        item.task_id, item.attempt, "completed", Raw(raw), None, started, duration_s
    )


def size_of(outcome: AttemptOutcome) -> int:
    """Bytes of its result."""
    return len(memoryview(outcome.result)) if isinstance(outcome.result, Raw) else 0


def failed(
    item: Item, fault: AttemptError, started: float, duration_s: float
) -> AttemptOutcome:
    return AttemptOutcome(
        item.task_id, item.attempt, "failed",
        error=fault, started_at=started, duration_s=duration_s,
    )  # fmt: skip


def cancelled(item: Item) -> AttemptOutcome:
    return AttemptOutcome(item.task_id, item.attempt, "cancelled")
