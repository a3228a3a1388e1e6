"""The task that runs in this process, for code that holds no worker."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from corral.client.http import request_ids
from corral.core.tasks.options import Trace
from corral.worker.base import Context, at_hand

_tasks: Sequence[Context] = ()


def show(tasks: Sequence[Context]) -> None:
    """The runner says which task it is at, or which batch of them."""
    global _tasks
    _tasks = tasks


def trace() -> Trace:
    """What is submitted from here came with it: as far as all tasks at hand agree."""
    tasks = at_hand.get(()) or _tasks
    ids = {task.request_id for task in tasks}
    parents = {task.traceparent for task in tasks}
    return Trace(*(each.pop() if len(each) == 1 else "" for each in (ids, parents)))


request_ids.find_by(trace)


def progress(done: float, total: float = 1.0, message: str = "") -> None:
    """Say from inside a running task how far it is: `done` of `total`.

    Works in any task, from any thread of it, and in scripts; where several tasks share
    a process, from the thread that was given the task. Where no task runs, because the
    function was called right here, it does nothing.
    """
    tasks = at_hand.get(()) or _tasks
    if tasks:
        tasks[0].progress(done / total if total else 1.0, message)
    elif os.environ.get("CORRAL_SCRIPT"):
        # A script speaks to its worker by what it prints.
        words = " ".join(str(message).split())
        sys.stdout.write(f"::progress {done}/{total} {words}".rstrip() + "\n")
        sys.stdout.flush()
