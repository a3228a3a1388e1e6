"""A Celery app with the habits of real ones, for the tests beside."""

from __future__ import annotations

import threading
from datetime import date, timedelta
from typing import Any

from celery import Celery, Task
from celery.exceptions import Ignore, MaxRetriesExceededError
from celery.signals import task_prerun

# Nothing answers at these addresses: a worker that dialled them would fail.
app = Celery("shop", broker="amqp://nowhere.example", backend="redis://nowhere.example")
NOT_AN_APP = 7
seen: list[str] = []


@task_prerun.connect
def _note(task_id: str, **_: Any) -> None:
    seen.append(f"prerun {task_id}")


class Noted(Task):  # type: ignore[misc]
    def on_failure(self, exc: Any, *_: Any) -> None:
        seen.append(f"on_failure {exc}")

    def on_retry(self, exc: Any, *_: Any) -> None:
        seen.append(f"on_retry {exc}")

    def after_return(self, status: str, *_: Any) -> None:
        seen.append(f"after_return {status}")


class OddError(Exception):
    """Cannot be pickled: it needs two arguments and keeps one."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)


@app.task(shared=False)
def later(day: date, days: int = 1) -> date:
    return day + timedelta(days=days)


@app.task(shared=False, base=Noted)
def odd() -> None:
    raise OddError(7, "odd indeed")


@app.task(shared=False)
def history() -> list[str]:
    return seen


@app.task(shared=False, bind=True)
def who(self: Any) -> list[Any]:
    request = self.request
    return [self.name, request.id, request.retries, request.called_directly]


@app.task(shared=False, bind=True)
def halfway(self: Any) -> None:
    self.update_state(state="HALFWAY", meta={"current": 1, "total": 2})
    threading.Event().wait()


@app.task(shared=False, bind=True, max_retries=2, base=Noted)
def stubborn(self: Any) -> None:
    try:
        raise OSError("disk")
    except OSError as error:
        raise self.retry(exc=error, countdown=60) from None


@app.task(shared=False, bind=True, max_retries=0)
def resigned(self: Any) -> str:
    try:
        self.retry()
    except MaxRetriesExceededError:
        return "gave up"
    return "never"


@app.task(shared=False, autoretry_for=(KeyError,), retry_kwargs={"max_retries": 5})
def auto() -> None:
    raise KeyError("gone")


@app.task(shared=False, bind=True)
def changed(self: Any) -> None:
    self.retry(args=[1])


@app.task(shared=False)
def ignored() -> None:
    raise Ignore


@app.task(shared=False)
def write(book: str, number: int) -> int:
    """Leaves a trace of every run."""
    with open(book, "a", encoding="utf-8") as file:
        file.write(f"{number}\n")
    return number
