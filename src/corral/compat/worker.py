"""The worker that runs the tasks of a Celery app, with Celery's own tracer.

So hooks (`on_failure`, `after_return`, ...) and task signals work as before. It never
talks to the app's broker or result backend.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import Any, NoReturn

from celery import Celery, states
from celery.app.trace import build_tracer
from celery.app.utils import find_app
from celery.exceptions import Retry

from corral.compat.call_options import job_type, mark, retries_of, revive
from corral.errors import WorkerError
from corral.worker import Context, Worker

_NOT_THE_USERS = ("celery.", "vine.", "corral.compat.")


class CeleryWorker(Worker):
    """Runs the tasks of the Celery app at `app` (`module:attr`).

    Args:
        app: Where the app is, as for `celery -A`.
        tasks: Names of the tasks to run; all of the app's own when left out.
        params: Kept in `self.params`.
    """

    def __init__(
        self, app: str, tasks: Sequence[str] | None = None, **params: Any
    ) -> None:
        super().__init__(**params)
        self._where = app
        self._names = tasks
        self._host = socket.gethostname()

    def start(self) -> None:
        app = load_app(self._where)
        # Results are Corral's affair: nothing may be sent to the app's own backend.
        app.conf.result_backend = "disabled://"
        self._tasks = {name: app.tasks[name] for name in task_names(app, self._names)}
        self._by_type = {job_type(name): name for name in self._tasks}
        self._traced = {
            name: build_tracer(name, task, app=app, eager=True)
            for name, task in self._tasks.items()
        }
        for task in self._tasks.values():
            task.retry = partial(_retry, task, task.retry)
            task.update_state = self._update_state

    def run(self, payload: Any) -> Any:
        name, args, kwargs = self._read(payload)
        ended = self._traced[name](
            self.context.task_id, args, kwargs, self._request(name)
        )
        if ended.info is None:
            return _kept(ended.retval)
        if ended.info.state == states.IGNORED:
            return None
        error = ended.info.retval
        if isinstance(error, Retry) and error.exc is not None:
            error = error.exc
        raise error.with_traceback(_users_part(error.__traceback__))

    def _read(self, payload: Any) -> tuple[str, list[Any], dict[str, Any]]:
        call = payload if isinstance(payload, dict) else {}
        name = call.get("task", self._by_type.get(self.context.job_type))
        args, kwargs = call.get("args", []), call.get("kwargs", {})
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise ValueError(
                'a Celery task needs a payload like {"args": [1, 2], "kwargs": {}}'
            )
        if name not in self._tasks:
            raise LookupError(
                f"the app {self._where} has no task {name!r} among those this worker "
                f"runs: {', '.join(sorted(self._tasks))}"
            )
        return str(name), revive(args), {k: revive(v) for k, v in kwargs.items()}

    def _request(self, name: str) -> dict[str, Any]:
        context: Context = self.context
        return {
            "id": context.task_id,
            "root_id": context.task_id,
            "task": name,
            "retries": context.attempt - 1,
            "hostname": self._host,
            "delivery_info": {
                "routing_key": context.job_type,
                "redelivered": context.attempt > 1,
            },
        }

    def _update_state(
        self,
        task_id: str | None = None,
        state: str | None = None,
        meta: Any = None,
        **ignored: Any,
    ) -> None:
        """A custom state becomes the progress of the task."""
        told = meta if isinstance(meta, dict) else {}
        try:
            fraction = float(told["current"]) / float(told["total"])
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            fraction = 0.0
        self.context.progress(fraction, state or "")


def load_app(where: str) -> Any:
    """The Celery app at `module:attr`, with all its task modules imported.

    Raises:
        WorkerError: there is no module or app of that name.
    """
    try:
        module, _, name = where.partition(":")
        app = getattr(import_module(module), name) if name else find_app(where)
    except (ImportError, AttributeError, ValueError) as error:
        raise WorkerError(
            f"cannot load the Celery app {where!r}: {type(error).__name__}: {error}",
            app=where,
        ) from error
    if not isinstance(app, Celery):
        raise WorkerError(f"{where!r} is not a Celery app", app=where)
    app.loader.import_default_modules()
    app.finalize()
    return app


def task_names(app: Any, chosen: Sequence[str] | None = None) -> list[str]:
    """The app's own tasks, or the chosen ones of them.

    Raises:
        WorkerError: a chosen task does not exist, or there is none at all.
    """
    own = sorted(name for name in app.tasks if not name.startswith("celery."))
    missing = sorted(set(chosen or ()) - set(own))
    if missing or not own:
        raise WorkerError(
            f"the Celery app has no task {', '.join(missing) or 'of its own'}; "
            f"it has: {', '.join(own) or 'none'}"
        )
    return own if chosen is None else list(chosen)


def _retry(
    task: Any,
    elsewhere: Any,
    args: Any = None,
    kwargs: Any = None,
    exc: BaseException | None = None,
    throw: bool = True,
    eta: Any = None,
    countdown: Any = None,
    max_retries: int | None = None,
    **options: Any,
) -> NoReturn:
    """`self.retry()`: ends this attempt as failed; Corral starts the next one."""
    request = task.request
    if request.called_directly:
        elsewhere(exc=exc)
    if args is not None or kwargs is not None:
        raise NotImplementedError(
            "retry with other arguments does not work on Corral: a task's payload "
            "never changes"
        ) from exc
    limit = retries_of(task) if max_retries is None else max_retries
    if request.retries >= limit:
        raise exc or task.MaxRetriesExceededError(
            f"{task.name} [{request.id}] has used its {limit} retries"
        )
    again = Retry(exc=exc, when=eta or countdown)
    # Celery may have put a wrapper in place of an error it cannot pickle.
    again.exc = exc
    raise again


def _kept(value: Any) -> Any:
    try:
        return mark(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        # Corral's own encoder knows more (arrays), and says what is wrong if not.
        return value


def _users_part(where: TracebackType | None) -> TracebackType | None:
    while where is not None and _is_machinery(where):
        where = where.tb_next
    return where


def _is_machinery(where: TracebackType) -> bool:
    module = str(where.tb_frame.f_globals.get("__name__", ""))
    return module.startswith(_NOT_THE_USERS)
