"""The calls about one task: submit, look, wait, cancel."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypedDict, Unpack
from uuid import uuid4

from corral.client.exchange import Flow, Request, get, segment
from corral.client.fault import decode
from corral.client.payload import encode
from corral.client.service_value import JobStatus
from corral.client.value import Submitted, TaskDetail, TaskInfo
from corral.errors import TaskFailed

POLL_S = 25.0

TaskRef: TypeAlias = str | Submitted | TaskInfo
"""A task's id, or any answer that has one."""


class TaskOptions(TypedDict, total=False):
    """What a submit may say beside type and parameters; the manager has defaults.

    `run_after` and `deadline` are a time or seconds from now, `timeout` is seconds.
    `notify` names URLs that are told when the task has ended. `node_labels` are those
    its node must have, `tolerates` taints (or their keys) it does not mind. Of a
    `group` at most `group_limit` are with workers at once. A `preemptible` task may be
    stopped for a critical one, and begins again. `resources` are what it takes of its
    node: `gpus` (2, or 0.5 of one), `gpu_memory_mb`, `gpu_kind`, `gpu_vendor`, `cpus`,
    `memory_mb`. The `gang_size` members of a `gang`, each with a `gang_rank` from 0,
    start together on as many nodes, or not at all. With `no_cache` it runs even where
    its result is kept from before. With `profile` it runs under a profiler, whose
    report is among its artifacts.
    """

    task_id: str
    model_name: str
    priority: int | Literal["low", "normal", "high", "critical"]
    timeout: float
    retries: int
    run_after: float | datetime | str
    deadline: float | datetime | str
    idempotency_key: str
    labels: Mapping[str, str]
    depends_on: Sequence[str]
    overlap: Literal["allowed", "never"]
    notify: str | Sequence[str]
    node_labels: Mapping[str, str]
    tolerates: Sequence[str]
    group: str
    group_limit: int
    preemptible: bool
    resources: Mapping[str, Any]
    gang: str
    gang_rank: int
    gang_size: int
    no_cache: bool
    profile: Literal["python", "torch", "memory"]


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
    response = yield get(path, wait_s=wait_s, wait=wait_s or None)
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
    ends = None if timeout is None else time.monotonic() + timeout
    while True:
        left = POLL_S if ends is None else max(ends - time.monotonic(), 0.0)
        found = yield from get_task(task, wait_s=round(min(left, POLL_S), 3))
        if found.is_terminal:
            return found
        if ends is not None and time.monotonic() >= ends:
            raise TimeoutError(
                f"task {found.task_id} is still {found.status} after {timeout:g} s"
                f"{_why(found)}"
            )


def _why(task: TaskDetail) -> str:
    return f" ({task.waiting.text})" if task.waiting else ""


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
    ends = None if wait_timeout is None else time.monotonic() + wait_timeout
    first_s = POLL_S if wait_timeout is None else min(wait_timeout, POLL_S)
    response = yield Request(
        "POST",
        "/tasks",
        {"wait": str(round(first_s, 3))},
        _body(task_type, parameters, options),
        is_repeatable=True,
        wait_s=first_s,
    )
    task = decode(response, TaskDetail)
    if not task.is_terminal:
        left_s = None if ends is None else max(ends - time.monotonic(), 0.0)
        task = yield from wait(task, left_s)
    return result_of(task)


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
