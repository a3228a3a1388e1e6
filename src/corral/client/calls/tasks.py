"""The calls about tasks, one or many: submit, look, wait, cancel, run again, why."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypedDict, Unpack
from uuid import uuid4

from corral.client.http.endpoint import Flow, Items, Request, Stream, get, poll, segment
from corral.client.http.errors import class_of, decode
from corral.client.http.payload import encode
from corral.errors import BadRequest, CorralError, TaskFailed, TaskNotFound, TooLarge
from corral.wire.job_api import JobStatus
from corral.wire.tasks import (
    Batch,
    Bulk,
    BulkError,
    BulkPage,
    Collected,
    Explanation,
    Refusal,
    Submitted,
    TaskDetail,
    TaskInfo,
    TaskList,
    TaskOptions,
)

TaskRef: TypeAlias = str | Submitted | TaskInfo
"""A task's id, or any answer that has one."""
BATCH_TASKS = 2_000
BATCH_BYTES = 16 * 1024 * 1024 - 1024
COLLECT_TASKS = 1_000
NAMED_ERRORS = 10
_LIVELY_S = 0.5
TaskLike: TypeAlias = Mapping[str, Any] | tuple[str, Any]
"""A task of a batch: `{"task_type": ..., "parameters": ..., ...}` or (type, params)."""
OnProgress: TypeAlias = Callable[[int, int], object]
"""Called with how many are done, of how many."""


def id_of(task: TaskRef) -> str:
    return task if isinstance(task, str) else task.task_id


def submit(
    task_type: str, parameters: Any = None, **options: Unpack[TaskOptions]
) -> Flow[Submitted]:
    """Hand a task to the cluster; returns as soon as it is stored.

    Without an `idempotency_key` or `task_id` a key is made up, so that sending it
    again after a lost answer never makes a second task.
    """
    body = _body(task_type, parameters, options)
    response = yield Request("POST", "/tasks", body=body, is_repeatable=True)
    return decode(response, Submitted)


def _body(task_type: str, parameters: Any, options: TaskOptions) -> bytes:
    task = {"task_type": task_type, "parameters": _or_empty(parameters), **options}
    if "task_id" not in task and "idempotency_key" not in task:
        task["idempotency_key"] = uuid4().hex
    return encode(task)


def _or_empty(parameters: Any) -> Any:
    return {} if parameters is None else parameters


def get_task(task: TaskRef, *, wait_s: float = 0.0) -> Flow[TaskDetail]:
    """A task as it is now, or when it ends within `wait_s` (60 at most)."""
    path = f"/tasks/{segment(id_of(task))}"
    response = yield get(path, wait_s=wait_s)
    return decode(response, TaskDetail)


def job_status(task: TaskRef) -> Flow[JobStatus]:
    """A task as the job API tells of it, in its words."""
    body = encode({"job_id": id_of(task)})
    response = yield Request("POST", "/get_job_status", body=body, is_repeatable=True)
    return decode(response, JobStatus)


def wait(task: TaskRef, timeout: float | None = None) -> Flow[TaskDetail]:
    """The task when it has ended, however it ended.

    Raises:
        TimeoutError: when it has not ended after `timeout` seconds.
    """
    tries = poll(timeout)
    found = yield from get_task(task, wait_s=next(tries))
    return (yield from _until_ended(found, tries, timeout))


def _until_ended(
    task: TaskDetail, tries: Iterator[float], timeout: float | None
) -> Flow[TaskDetail]:
    while not task.is_terminal:
        if (wait_s := next(tries, None)) is None:
            why = f" ({task.waiting.text})" if task.waiting else ""
            raise TimeoutError(
                f"task {task.task_id} is still {task.status} after {timeout:g} s{why}"
            )
        task = yield from get_task(task, wait_s=wait_s)
    return task


def result(task: TaskRef, timeout: float | None = None) -> Flow[Any]:
    """What the task returned.

    Raises:
        TaskFailed: when it ended otherwise; has `.task`, `.kind` and `.traceback`.
        TimeoutError: when it has not ended after `timeout` seconds.
    """
    ended = yield from wait(task, timeout)
    return result_of(ended)


def result_of(task: TaskInfo) -> Any:
    """The result of a task that has ended; raises TaskFailed unless it completed."""
    if task.is_completed:
        return task.result
    error = task.error
    said = f": {error.message}" if error and error.message else ""
    raise TaskFailed(
        f"task {task.task_id} {task.status.replace('_', ' ')}{said}",
        task=task,
        task_id=task.task_id,
        kind=error.kind if error else task.status,
        traceback=error.traceback if error else None,
    )


def submit_and_wait(
    task_type: str,
    parameters: Any = None,
    *,
    wait_s: float,
    **options: Unpack[TaskOptions],
) -> Flow[TaskDetail]:
    """Hand a task in and wait so long for its end, in one request.

    Returns:
        The task, which may still be live.
    """
    response = yield Request(
        "POST",
        "/tasks",
        {"wait": str(round(wait_s, 3))},
        _body(task_type, parameters, options),
        is_repeatable=True,
        wait_s=wait_s,
    )
    return decode(response, TaskDetail)


def run(
    task_type: str,
    parameters: Any = None,
    *,
    wait_timeout: float | None = None,
    **options: Unpack[TaskOptions],
) -> Flow[Any]:
    """Submit, wait and return the result; `wait_timeout` bounds the waiting only.

    Raises:
        TaskFailed: when the task ended otherwise than completed.
        TimeoutError: when it has not ended after `wait_timeout` seconds.
    """
    tries = poll(wait_timeout)
    task = yield from submit_and_wait(
        task_type, parameters, wait_s=next(tries), **options
    )
    return result_of((yield from _until_ended(task, tries, wait_timeout)))


def cancel(task: TaskRef) -> Flow[None]:
    """Stop a task, running or not. Raises Conflict when it had ended."""
    yield Request("POST", f"/tasks/{segment(id_of(task))}/cancel")


def requeue(task: TaskRef) -> Flow[TaskDetail]:
    """Run an ended task again under the same id. Raises Conflict when it is live."""
    response = yield Request("POST", f"/tasks/{segment(id_of(task))}/requeue")
    return decode(response, TaskDetail)


def discard(task: TaskRef) -> Flow[None]:
    """Take a task out of the dead letters; its record stays.

    Raises:
        TaskNotFound: it is not among them.
    """
    yield Request("POST", "/discard_from_dlq", body=encode({"job_id": id_of(task)}))


# The calls about many tasks: few large requests, little work per task.


@dataclass(slots=True)
class _TaskParcel:
    """Encoded tasks of one request, and where in the batch each stood."""

    texts: list[bytes] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    size: int = 0

    def has_room(self, size: int) -> bool:
        return len(self.texts) < BATCH_TASKS and self.size + size + 1 <= BATCH_BYTES

    def add(self, place: int, text: bytes) -> None:
        self.texts.append(text)
        self.places.append(place)
        self.size += len(text) + 1

    def body(self) -> bytes:
        return b'{"tasks":[' + b",".join(self.texts) + b"]}"


def submit_batch(
    tasks: Iterable[TaskLike], *, on_progress: OnProgress | None = None
) -> Flow[Batch]:
    """Submit many tasks; a refused one is told in `errors` and hinders no other.

    Tasks without `task_id` and `idempotency_key` get an id here, so that a request
    sent again after a lost answer makes no task twice.
    """
    given = tasks if isinstance(tasks, Sequence) else list(tasks)
    ids: list[str | None] = [None] * len(given)
    refused: list[Refusal] = []
    sent = 0
    for parcel in _pack(given, refused):
        response = yield Request(
            "POST", "/tasks/batch", body=parcel.body(), is_repeatable=True
        )
        answer = decode(response, Batch)
        for place, task_id in zip(parcel.places, answer.task_ids, strict=True):
            ids[place] = task_id
        refused += [
            Refusal(index=parcel.places[no.index], code=no.code, message=no.message)
            for no in answer.errors
        ]
        sent += len(parcel.places)
        if on_progress is not None:
            on_progress(sent, len(given))
    refused.sort(key=lambda refusal: refusal.index)
    return Batch(
        task_ids=ids,
        errors=refused,
        accepted=len(ids) - len(refused),
        refused=len(refused),
    )


def submit_many(
    tasks: Iterable[TaskLike], *, on_progress: OnProgress | None = None
) -> Flow[list[str]]:
    """Submit many tasks; their ids, in order.

    Raises:
        CorralError: when some were refused, with `.refused` (which, and why) and
            `.task_ids` (None where refused): the others are accepted and run. It is
            of the class of the refusals when all have one, else BadRequest.
    """
    batch = yield from submit_batch(tasks, on_progress=on_progress)
    if batch.errors:
        raise _refusal(batch)
    return [task_id for task_id in batch.task_ids if task_id is not None]


def _refusal(batch: Batch) -> CorralError:
    first = batch.errors[0]
    codes = {refusal.code for refusal in batch.errors}
    kind = class_of(first.code) if len(codes) == 1 else BadRequest
    return kind(
        f"{len(batch.errors)} of {len(batch.task_ids)} tasks were refused; "
        f"the first, number {first.index}: {first.message}",
        refused=batch.errors,
        task_ids=batch.task_ids,
    )


def _pack(tasks: Sequence[TaskLike], refused: list[Refusal]) -> Iterator[_TaskParcel]:
    parcel = _TaskParcel()
    for place, task in enumerate(_with_ids(tasks)):
        try:
            text = encode(task)
            if len(text) > BATCH_BYTES:
                raise TooLarge(f"it has {len(text)} bytes, more than a batch may have")
        except BadRequest as error:
            refused.append(Refusal(index=place, code=error.code, message=error.message))
            continue
        if not parcel.has_room(len(text)):
            yield parcel
            parcel = _TaskParcel()
        parcel.add(place, text)
    if parcel.texts:
        yield parcel


def _with_ids(tasks: Sequence[TaskLike]) -> Iterator[dict[str, Any]]:
    stem = _id_stem()
    for place, task in enumerate(tasks):
        if isinstance(task, tuple):
            full: dict[str, Any] = {"task_type": task[0], "parameters": task[1]}
        else:
            full = dict(task)
        if "task_id" not in full and "idempotency_key" not in full:
            full["task_id"] = f"{stem}{place:08x}"
        yield full


def _id_stem() -> str:
    """All but the last 8 digits of a UUID of version 7: the time, then luck.

    Ids of one batch are neighbours: cheap here, and kind to the manager's index.
    """
    at, luck = f"{time.time_ns() // 1_000_000:012x}", secrets.token_hex(5)
    return f"{at[:8]}-{at[8:]}-7{luck[:3]}-8{luck[3:6]}-{luck[6:]}"


def collect(tasks: Sequence[TaskRef], *, wait_s: float = 0.0) -> Flow[Collected]:
    """Which of up to 1,000 tasks have ended, once all have or after `wait_s`."""
    body = encode({"task_ids": [id_of(task) for task in tasks], "wait": wait_s})
    response = yield Request(
        "POST", "/tasks/collect", body=body, is_repeatable=True, wait_s=wait_s
    )
    return decode(response, Collected)


def wait_many(
    tasks: Iterable[TaskRef],
    timeout: float | None = None,
    *,
    on_progress: OnProgress | None = None,
) -> Flow[list[TaskInfo]]:
    """The tasks, in order, when all have ended, however they ended.

    Raises:
        TaskNotFound: when the manager does not know some of them.
        TimeoutError: when some have not ended after `timeout` seconds.
    """
    ids = [id_of(task) for task in tasks]
    tries = poll(timeout) if on_progress is None else poll(timeout, _LIVELY_S)
    ended: dict[str, TaskInfo] = {}
    pending = deque(dict.fromkeys(ids))
    total = len(pending)
    while pending:
        if (wait_s := next(tries, None)) is None:
            raise TimeoutError(
                f"{len(pending)} of {total} tasks have not ended after {timeout:g} s"
            )
        chunk = [pending.popleft() for _ in range(min(COLLECT_TASKS, len(pending)))]
        found = yield from collect(chunk, wait_s=wait_s)
        if found.unknown:
            raise TaskNotFound(
                f"there is no task {found.unknown[0]}", task_ids=found.unknown
            )
        for task in found.tasks:
            ended[task.task_id] = task
        pending.extend(found.pending)
        if on_progress is not None:
            on_progress(len(ended), total)
    return [ended[task_id] for task_id in ids]


class TaskQuery(TypedDict, total=False):
    """Which tasks are meant: those that are like all of what is said.

    `status` may be several, with commas. A `label` reads `key:value`; `search` is
    looked for in ids, types and errors. `dead` asks for dead letters only, or for all
    but them, `request_id` for those of one request, `schedule` for its runs.
    """

    status: str | None
    task_type: str | None
    model_name: str | None
    worker_id: str | None
    label: str | None
    search: str | None
    dead: bool | None
    request_id: str | None
    schedule: str | None


def list_tasks(
    *, limit: int | None = None, **query: Unpack[TaskQuery]
) -> Stream[TaskInfo]:
    """Tasks, newest first; pages are fetched as the caller goes on.

    Without a `limit` the stream ends with the oldest task.
    """
    left = limit
    cursor: str | None = None
    while left is None or left > 0:
        response = yield get(
            "/tasks", limit=min(left or 200, 200), cursor=cursor, **_words(query)
        )
        page = decode(response, TaskList)
        yield Items(page.tasks[:left])
        cursor = page.next_cursor
        if left is not None:
            left -= len(page.tasks)
        if cursor is None or not page.tasks:
            return


def cancel_tasks(**query: Unpack[TaskQuery]) -> Flow[Bulk]:
    """Stop all tasks like this that wait or run; something must be said of them."""
    return (yield from _all("/tasks/cancel", query, is_repeatable=True))


def requeue_tasks(**query: Unpack[TaskQuery]) -> Flow[Bulk]:
    """Run all ended tasks like this again; without a `status`, those that failed."""
    # Sent again, it would also find what has run and failed once more meanwhile.
    return (yield from _all("/tasks/requeue", query, is_repeatable=False))


def _all(path: str, query: TaskQuery, *, is_repeatable: bool) -> Flow[Bulk]:
    cursor: str | None = None
    done, refused, errors = 0, 0, list[BulkError]()
    while True:
        given = get(path, cursor=cursor, **_words(query)).query
        response = yield Request("POST", path, given, is_repeatable=is_repeatable)
        page = decode(response, BulkPage)
        done, refused = done + page.done, refused + page.refused
        errors += page.errors
        cursor = page.next_cursor
        if cursor is None:
            return Bulk(done=done, refused=refused, errors=errors[:NAMED_ERRORS])


def _words(query: TaskQuery) -> dict[str, Any]:
    """As the wire has them."""
    dead = query.get("dead")
    return {**query, "dead": None if dead is None else str(dead).lower()}


def explain(task: TaskRef, *, limit: int | None = None) -> Flow[Explanation]:
    """Why a task waits and what would start it, or why it ran where it did.

    `limit` is how many candidate workers are told; 0 tells all.
    """
    response = yield get(f"/tasks/{segment(id_of(task))}/explain", limit=limit)
    return decode(response, Explanation)
