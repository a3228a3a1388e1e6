"""What `.delay()` returns: a task of Corral under the names of Celery's AsyncResult.

Errors come back as text and are never unpickled.
"""

from __future__ import annotations

import builtins
from contextlib import suppress
from datetime import datetime
from typing import Any, NoReturn

from celery import exceptions, states

from corral.client import Client, TaskDetail, TaskInfo
from corral.compat.call_options import revive
from corral.core.tasks.task import State
from corral.errors import Conflict, TaskFailed, TaskNotFound

_WORDS = {
    State.QUEUED: states.PENDING,
    State.ASSIGNED: states.PENDING,
    State.RUNNING: states.STARTED,
    State.COMPLETED: states.SUCCESS,
    State.FAILED: states.FAILURE,
    State.ERROR: states.FAILURE,
    State.TIMED_OUT: states.FAILURE,
    State.CANCELLED: states.REVOKED,
}
_EXPIRED = "deadline"


class RemoteError(TaskFailed):
    """A task ended without a result.

    Has `.task`, `.task_id`, `.kind` (a stable word), `.exc_type` (the name of the
    class the task raised, or None) and `.traceback` (text). Where the task raised a
    plain exception of Python itself, the error is of that class too, so that
    `except ValueError` around `.get()` goes on to work.
    """

    def __str__(self) -> str:
        return self.message


class TaskRevoked(RemoteError, exceptions.TaskRevokedError):  # type: ignore[misc]
    """The task was revoked, or expired before it could start."""


class TimeLimitPassed(RemoteError, exceptions.TimeLimitExceeded):  # type: ignore[misc]
    """The task ran longer than it may."""


class ResultTimeout(exceptions.TimeoutError, TimeoutError):  # type: ignore[misc]
    """The task had not ended when the caller's patience had."""


_NATIVE: dict[str, type[RemoteError]] = {
    kind.__name__: type(kind.__name__, (RemoteError, kind), {})
    for kind in (
        builtins.ArithmeticError,
        builtins.AssertionError,
        builtins.AttributeError,
        builtins.ConnectionError,
        builtins.FileNotFoundError,
        builtins.ImportError,
        builtins.IndexError,
        builtins.KeyError,
        builtins.LookupError,
        builtins.MemoryError,
        builtins.NotImplementedError,
        builtins.OSError,
        builtins.OverflowError,
        builtins.PermissionError,
        builtins.RuntimeError,
        builtins.TimeoutError,
        builtins.TypeError,
        builtins.ValueError,
        builtins.ZeroDivisionError,
    )
}


def state_of(task: TaskDetail) -> str:
    """Celery's word for the state of a task."""
    if task.status == State.QUEUED and task.tries:
        return str(states.RETRY)
    return ended_state_of(task)


def ended_state_of(task: TaskInfo) -> str:
    """The same for a task that has ended, or that nobody has tried yet."""
    if task.status == State.TIMED_OUT and _kind(task) == _EXPIRED:
        return str(states.REVOKED)
    return str(_WORDS.get(State(task.status), states.PENDING))


def error_of(task: TaskInfo) -> RemoteError:
    """The error of a task that has ended without a result."""
    told = task.error.message if task.error else ""
    kind = _kind(task)
    name, _, text = told.partition(": ")
    raised = name if kind == "exception" and name.isidentifier() else None
    family: type[RemoteError] = RemoteError
    if ended_state_of(task) == states.REVOKED:
        family = TaskRevoked
    elif task.status == State.TIMED_OUT:
        family = TimeLimitPassed
    elif raised in _NATIVE:
        family, told = _NATIVE[raised], text
    return family(
        told or task.status.replace("_", " "),
        task=task,
        task_id=task.task_id,
        kind=kind,
        exc_type=raised,
        traceback=task.error.traceback if task.error else None,
    )


def _kind(task: TaskInfo) -> str:
    return task.error.kind if task.error else task.status


class AsyncResult:
    """A task that was sent; every question asks the manager until it has ended."""

    # Celery's canvas looks for these before it sends, and is refused then.
    parent = children = None

    def __init__(self, task_id: str, client: Client, name: str | None = None) -> None:
        self.id = task_id
        self.name = name
        self._client = client
        self._ended: TaskDetail | None = None

    @property
    def task_id(self) -> str:
        return self.id

    def get(
        self, timeout: float | None = None, propagate: bool = True, **ignored: Any
    ) -> Any:
        """What the task returned, once it has.

        Args:
            timeout: Seconds to wait; without end when None.
            propagate: Raise the task's error; else return it.
            ignored: Other arguments of Celery's `get`; they have no meaning here.

        Raises:
            RemoteError: the task ended without a result.
            ResultTimeout: it has not ended in time; it goes on.
            TaskNotFound: there is no such task, or it was deleted long after its end.
        """
        task = self._ended or self._wait(timeout)
        value = _outcome(task)
        if propagate and isinstance(value, RemoteError):
            raise value
        return value

    wait = get

    def _wait(self, timeout: float | None) -> TaskDetail:
        try:
            self._ended = self._client.wait(self.id, timeout)
        except TimeoutError as error:
            raise ResultTimeout(str(error)) from None
        return self._ended

    def _look(self) -> TaskDetail | None:
        if self._ended is not None:
            return self._ended
        try:
            task = self._client.get_task(self.id)
        except TaskNotFound:
            return None
        if task.is_terminal:
            self._ended = task
        return task

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE or REVOKED.

        A task nobody knows is PENDING, as it is with Celery.
        """
        task = self._look()
        return state_of(task) if task else str(states.PENDING)

    status = state

    @property
    def result(self) -> Any:
        """What the task returned, or its error (not raised), or None until then."""
        task = self._look()
        return _outcome(task) if task and task.is_terminal else None

    info = result

    @property
    def traceback(self) -> str | None:
        task = self._look()
        return task.error.traceback if task and task.error else None

    @property
    def date_done(self) -> datetime | None:
        task = self._look()
        return task.completed_at if task else None

    @property
    def retries(self) -> int:
        """How many attempts have failed so far."""
        task = self._look()
        return task.tries if task else 0

    def ready(self) -> bool:
        return self.state in states.READY_STATES

    def successful(self) -> bool:
        return self.state == str(states.SUCCESS)

    def failed(self) -> bool:
        return self.state == str(states.FAILURE)

    def revoke(self, *ignored: Any, **also_ignored: Any) -> None:
        """Stop the task, also when it runs; nothing happens when it has ended.

        Celery's `terminate`, `signal` and `wait` are taken and have no meaning.
        """
        with suppress(Conflict):
            self._client.cancel(self.id)

    def forget(self) -> None:
        """Does nothing: Corral keeps tasks and results for its retention time."""

    def then(self, *ignored: Any, **also_ignored: Any) -> NoReturn:
        """Refused: nobody listens for results here, and chords need it."""
        raise NotImplementedError("callbacks on results do not work on Corral")

    def __eq__(self, other: object) -> bool:
        return other.id == self.id if isinstance(other, AsyncResult) else False

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"<AsyncResult: {self.id}>"


def _outcome(task: TaskDetail) -> Any:
    return revive(task.result) if task.is_completed else error_of(task)
