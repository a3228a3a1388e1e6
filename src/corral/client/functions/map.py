"""Calls of one function as tasks: one, or a stream that is fed as it is read.

Declarations only; whether the caller blocks or awaits is the drivers' affair.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

from corral.client.calls import queues
from corral.client.calls import tasks as task_calls
from corral.client.functions.source import FunctionSource, send_source
from corral.client.http.endpoint import Flow, Items, Stream
from corral.client.http.errors import class_of
from corral.client.http.payload import encode
from corral.client.progress import Advance
from corral.core.backoff import Backoff
from corral.errors import (
    CorralError,
    Forbidden,
    InvalidField,
    TaskFailed,
    TaskNotFound,
    UnknownTaskType,
)
from corral.wire.tasks import Batch, TaskInfo, TaskOptions

CHUNK = 2_000
GATHER_S = 0.05
WINDOW = 2 * CHUNK
BUFFER = 8 * CHUNK
_WAITS = Backoff(0.05, 1.0)
IDS_PER_S = 5_000

Arguments: TypeAlias = tuple[Sequence[Any], Mapping[str, Any]]
"""Those by place and those by name."""


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """What every task of one function has in common; `where` is the manager."""

    source: FunctionSource
    job_type: str
    options: TaskOptions
    where: str

    def task(self, digest: str, arguments: Arguments) -> dict[str, Any]:
        """A task as a batch takes it."""
        source = self.source
        parameters = {
            "archive": digest,
            "path": source.path,
            "module": source.module,
            "function": source.name,
            "args": arguments[0],
            "kwargs": arguments[1],
        }
        return {"task_type": self.job_type, "parameters": parameters, **self.options}


def check_arguments(arguments: Arguments, what: str) -> Arguments:
    """The same, if JSON can carry them.

    Raises:
        InvalidField: it has no form for them.
    """
    try:
        encode(arguments)
    except InvalidField as error:
        raise InvalidField(f"{what}: {error.message}", field="arguments") from error
    return arguments


def submit_call(call: FunctionCall, arguments: Arguments) -> Flow[str]:
    """Hand in one call; the id of its task. Code the manager lacks goes first."""
    digest = yield from send_source(call.source, call.where)
    told = call.task(digest, arguments)
    kind, parameters = told.pop("task_type"), told.pop("parameters")
    try:
        done = yield from task_calls.submit(kind, parameters, **told)
    except UnknownTaskType as unknown:
        yield from _make_known(kind, unknown)
        done = yield from task_calls.submit(kind, parameters, **told)
    return done.task_id


def _make_known(kind: str, unknown: CorralError) -> Flow[None]:
    """A task may come before the first worker that serves its type, and waits."""
    try:
        yield from queues.register_job_type(kind)
    except Forbidden:
        raise unknown from None


def result_of_call(task_id: str, timeout: float | None = None) -> Flow[Any]:
    """What the function returned.

    Raises:
        TaskFailed: it raised, or the task ended otherwise; the error shows the
            traceback of the function.
        TimeoutError: it has not ended after `timeout` seconds.
    """
    ended = yield from task_calls.wait(task_id, timeout)
    return outcome_of(ended)


def outcome_of(ended: TaskInfo) -> Any:
    try:
        return task_calls.result_of(ended)
    except TaskFailed as failed:
        if failed.traceback:
            failed.add_note(f"In the task:\n{failed.traceback.rstrip()}")
        raise


@dataclass(slots=True)
class _Window:
    """The calls on their way: sent and not ended, ended and not handed out."""

    is_ordered: bool
    pending: dict[str, int] = field(default_factory=dict)
    ended: dict[int, TaskInfo] = field(default_factory=dict)
    sent: int = 0
    done: int = 0
    handed: int = 0

    @property
    def has_room(self) -> bool:
        held = len(self.pending)
        return held <= WINDOW - CHUNK and held + len(self.ended) < BUFFER

    def add(self, ids: Sequence[str]) -> None:
        for task_id in ids:
            self.pending[task_id] = self.sent
            self.sent += 1

    def oldest(self) -> list[str]:
        return list(islice(self.pending, task_calls.COLLECT_TASKS))

    def take(self, tasks: Sequence[TaskInfo], still: Sequence[str]) -> None:
        for each in tasks:
            self.ended[self.pending.pop(each.task_id)] = each
        self.done += len(tasks)
        # To the back, so that the others get asked about as well.
        for task_id in still:
            self.pending[task_id] = self.pending.pop(task_id)

    def hand_out(self) -> list[TaskInfo]:
        """Those whose turn it is."""
        if not self.is_ordered:
            out = list(self.ended.values())
            self.ended.clear()
            return out
        out = []
        while (ready := self.ended.pop(self.handed, None)) is not None:
            out.append(ready)
            self.handed += 1
        return out


def feed(
    call: FunctionCall,
    arguments: Iterator[Arguments],
    *,
    ordered: bool,
    keep_errors: bool,
    on_progress: Advance,
    total: int | None,
) -> Stream[Any]:
    """Results of many calls; arguments are read only as fast as tasks end."""
    window, is_over, empty = _Window(ordered), False, 0
    while True:
        while not is_over and window.has_room:
            chunk = list(_gather(arguments))
            is_over = not chunk
            window.add((yield from _send(call, chunk, window.sent)))
        if not window.pending:
            return
        asked = window.oldest()
        # A long list costs the manager more than a short one: it is sent less often.
        wait_s = max(_WAITS.delay_s(empty + 1), len(asked) / IDS_PER_S)
        found = yield from task_calls.collect(asked, wait_s=round(wait_s, 3))
        if found.unknown:
            raise TaskNotFound(
                f"there is no task {found.unknown[0]}", task_ids=found.unknown
            )
        empty = 0 if found.tasks else empty + 1
        window.take(found.tasks, found.pending)
        on_progress(window.done, total)
        yield from _hand_over(window.hand_out(), keep_errors)


def _gather(arguments: Iterator[Arguments]) -> Iterator[Arguments]:
    """Some of them: a source that is slow to give must not hold back what it gave."""
    ends = None
    for count, each in enumerate(arguments, 1):
        yield each
        ends = ends or time.monotonic() + GATHER_S
        if count >= CHUNK or time.monotonic() >= ends:
            return


def _send(
    call: FunctionCall, chunk: Sequence[Arguments], before: int
) -> Flow[list[str]]:
    if not chunk:
        return []
    digest = yield from send_source(call.source, call.where)
    tasks = [call.task(digest, each) for each in chunk]
    batch = yield from task_calls.submit_batch(tasks)
    codes = {refusal.code for refusal in batch.errors}
    if codes == {UnknownTaskType.code}:
        yield from _make_known(call.job_type, _refusal(batch, before))
        batch = yield from task_calls.submit_batch(tasks)
    if batch.errors:
        raise _refusal(batch, before)
    return [task_id for task_id in batch.task_ids if task_id is not None]


def _refusal(batch: Batch, before: int) -> CorralError:
    first = batch.errors[0]
    return class_of(first.code)(
        f"call {before + first.index} was refused: {first.message}",
        refused=batch.errors,
    )


def _hand_over(ended: Sequence[TaskInfo], keep_errors: bool) -> Stream[Any]:
    values: list[Any] = []
    for each in ended:
        try:
            values.append(outcome_of(each))
        except TaskFailed as failed:
            if not keep_errors:
                yield Items(values)
                raise
            values.append(failed)
    yield Items(values)
