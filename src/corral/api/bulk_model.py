"""The JSON shapes of what is done to many tasks at once, as msgspec structs."""

from __future__ import annotations

from msgspec import Struct


class TaskRefusal(Struct):
    task_id: str
    code: str
    message: str


class BulkOut(Struct):
    """How many it was done to; `errors` names the first of those it was not done to.

    `next_cursor` is None when there are no more.
    """

    done: int
    refused: int
    errors: list[TaskRefusal]
    next_cursor: str | None
