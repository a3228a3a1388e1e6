"""Results in the form Celery's clients read from a Redis result backend.

The form is pinned by a test with a real client. Nothing is sent from here.
"""

from __future__ import annotations

import builtins
import json
import re
from datetime import UTC, datetime
from typing import Any

from celery import states

from corral.client import TaskInfo
from corral.compat.broker import Answer
from corral.compat.result import (
    RemoteError,
    TaskRevoked,
    TimeLimitPassed,
    ended_state_of,
    error_of,
)

_CELERY = "celery.exceptions"
_POISON = "poison"
_REFUSALS = {
    "unknown_task_type": ("NotRegistered", _CELERY),
    "not_json": ("ContentDisallowed", "kombu.exceptions"),
    "not_carried_out": ("NotImplementedError", "builtins"),
    "task_not_found": ("LookupError", "builtins"),
}


def key_of(task_id: str) -> str:
    """Where the meta of a task is kept; also the channel it is announced on."""
    return f"celery-task-meta-{task_id}"


def ended(task: TaskInfo) -> str:
    """The meta of a task that has ended."""
    if task.is_completed:
        return _meta(task.task_id, states.SUCCESS, task.result, done=task.completed_at)
    error = error_of(task)
    return _meta(
        task.task_id,
        ended_state_of(task),
        _thrown(error),
        traceback=error.traceback,
        done=task.completed_at,
    )


def started(task: TaskInfo) -> str:
    """The meta of a task that runs now."""
    return _meta(task.task_id, states.STARTED, {"hostname": task.worker_id})


def refused(answer: Answer) -> str:
    """The meta of a message that was not taken."""
    name, module = _REFUSALS.get(answer.code, ("ValueError", "builtins"))
    error = _error(name, module, answer.reason)
    return _meta(answer.task_id, states.FAILURE, error, done=datetime.now(UTC))


def _meta(
    task_id: str,
    status: Any,
    result: Any,
    *,
    traceback: str | None = None,
    done: datetime | None = None,
) -> str:
    return json.dumps(
        {
            "status": str(status),
            "result": result,
            "traceback": traceback,
            "children": [],
            "date_done": done.isoformat() if done else None,
            "task_id": task_id,
        }
    )


def _thrown(error: RemoteError) -> dict[str, Any]:
    if isinstance(error, TaskRevoked):
        return _error("TaskRevokedError", _CELERY, error.message)
    if isinstance(error, TimeLimitPassed):
        return _error("TimeLimitExceeded", _CELERY, error.message)
    if error.kind == _POISON:
        return _error("WorkerLostError", _CELERY, error.message)
    if error.exc_type is None:
        return _error("TaskFailed", "corral.errors", error.message)
    text = error.message.removeprefix(f"{error.exc_type}: ")
    return _error(error.exc_type, _module_of(error), text)


def _module_of(error: RemoteError) -> str | None:
    """Where the class of an error is, by the last line of its traceback."""
    if isinstance(getattr(builtins, error.exc_type, None), type):
        return "builtins"
    last = re.compile(rf"^([\w.]+)\.{re.escape(error.exc_type)}(?::|$)", re.MULTILINE)
    found = last.findall(error.traceback or "")
    return found[-1] if found else None


def _error(name: str, module: str | None, message: str) -> dict[str, Any]:
    return {"exc_type": name, "exc_message": [message], "exc_module": module}
