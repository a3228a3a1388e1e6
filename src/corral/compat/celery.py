"""For people who come from Celery: an app's tasks run on Corral, called as before.

`adopt` (a whole app) and `task` (one task) turn the one door all calls of a Celery app
go through, `app.send_task`. The app's broker and result backend are not used.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar, overload
from uuid import uuid4

from corral.client import Client, TaskOptions, WorkerInfo
from corral.compat.call_options import check_supported, job_type, options_of, pack
from corral.compat.result import (
    AsyncResult,
    RemoteError,
    ResultTimeout,
    TaskRevoked,
    TimeLimitPassed,
)
from corral.compat.worker import CeleryWorker, load_app, task_names
from corral.errors import Forbidden, UnknownTaskType

__all__ = [
    "AsyncResult",
    "CeleryWorker",
    "RemoteError",
    "ResultTimeout",
    "TaskRevoked",
    "TimeLimitPassed",
    "adopt",
    "job_type",
    "launch",
    "task",
]

T = TypeVar("T")
WORKER = "corral.compat.celery:CeleryWorker"


def adopt(app: T, client: Client | None = None) -> T:
    """Send every task of a Celery app to Corral from now on; returns the app.

    `.delay()`, `.apply_async()`, signatures' `.delay()`, `app.send_task()` and
    `app.AsyncResult()` then speak of tasks of Corral. Tasks defined later are
    included. Nothing is sent or connected to before the first call.

    Args:
        app: The Celery app.
        client: What to send with; without one, a `Client()` made at the first call.
    """
    door = _SendTask.of(app)
    door.adopt_all(client)
    app.AsyncResult = door.result  # type: ignore[attr-defined]
    return app


@overload
def task(celery_task: T, *, client: Client | None = None) -> T: ...
@overload
def task(*, client: Client | None = None) -> Callable[[T], T]: ...
def task(celery_task: Any = None, *, client: Client | None = None) -> Any:
    """Send one Celery task to Corral; stands above `@app.task`.

    The app's other tasks stay with Celery. `app.AsyncResult` stays Celery's: keep the
    result that `.delay()` returns.
    """
    if celery_task is None:
        return lambda below: task(below, client=client)
    _SendTask.of(celery_task.app).adopt(celery_task.name, client)
    return celery_task


def launch(
    app: str,
    *,
    tasks: Sequence[str] | None = None,
    client: Client | None = None,
    name: str | None = None,
    concurrency: int | None = None,
    node_id: str | None = None,
    count: int | None = None,
) -> list[WorkerInfo]:
    """Launch workers for the tasks of the app at `module:attr`.

    The app is imported here too, to learn the names of its tasks.

    Raises:
        WorkerError: there is no such app, or no such task in it.
    """
    names = task_names(load_app(app), tasks)
    params: dict[str, Any] = {"app": app}
    if tasks is not None:
        params["tasks"] = list(tasks)
    with nullcontext(client) if client else Client() as link:
        return link.launch_worker(
            WORKER,
            name=name,
            job_types=[job_type(each) for each in names],
            params=params,
            concurrency=concurrency,
            node_id=node_id,
            count=count,
        )


class _SendTask:
    """Stands in for `send_task` of one app, for all of its tasks or for some."""

    def __init__(self, app: Any) -> None:
        self._names: set[str] | None = set()
        """Of the tasks that are ours; None when all are."""
        self._given: Client | None = None
        self._app = app
        self._elsewhere = app.send_task
        self._made: tuple[int, Client] | None = None
        self._lock = threading.Lock()

    @classmethod
    def of(cls, app: Any) -> _SendTask:
        """The door of an app, put in place when it has none."""
        door = getattr(app.send_task, "__self__", None)
        if not isinstance(door, cls):
            door = cls(app)
            app.send_task = door.send
        return door

    def adopt_all(self, client: Client | None) -> None:
        """From now on every task is ours."""
        self._names = None
        self._given = client or self._given

    def adopt(self, name: str, client: Client | None) -> None:
        """From now on this task is ours, too."""
        if self._names is not None:
            self._names.add(name)
        self._given = client or self._given

    def send(
        self, name: str, args: Any = None, kwargs: Any = None, **asked: Any
    ) -> Any:
        """What `Task.apply_async` and `app.send_task` end in."""
        if self._names is not None and name not in self._names:
            return self._elsewhere(name, args, kwargs, **asked)
        check_supported(name, asked)
        asked["task_id"] = asked.get("task_id") or str(uuid4())
        known = asked.get("task_type") or self._app.tasks.get(name)
        payload = pack(name, args or (), kwargs or {})
        options = options_of(self._app, known, asked)
        client = self._client()
        submit(client, job_type(name), payload, options)
        return AsyncResult(asked["task_id"], client, name)

    def result(self, task_id: str, *ignored: Any, **also_ignored: Any) -> AsyncResult:
        """What `app.AsyncResult(id)` is once the whole app is adopted."""
        return AsyncResult(task_id, self._client(), also_ignored.get("task_name"))

    def _client(self) -> Client:
        if self._given is not None:
            return self._given
        with self._lock:
            # A connection must not be shared with a process forked off this one.
            if self._made is None or self._made[0] != os.getpid():
                self._made = (os.getpid(), Client())
            return self._made[1]


def submit(
    client: Client, kind: str, payload: dict[str, Any], options: TaskOptions
) -> None:
    """Hand the task in; its type is made known where no worker has served it yet.

    With Celery a task may be sent before the first worker starts, and waits.
    """
    try:
        client.submit(kind, payload, **options)
        return
    except UnknownTaskType as unknown:
        try:
            client.register_job_type(kind)
        except Forbidden:
            raise unknown from None
    client.submit(kind, payload, **options)
