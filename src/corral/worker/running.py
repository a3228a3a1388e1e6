"""The task that runs in this process, for code that holds no worker."""

from __future__ import annotations

import os
import sys

from corral.worker.base import Context, at_hand

_context: Context | None = None


def show(context: Context | None) -> None:
    """The runner says which task it is at."""
    global _context
    _context = context


def progress(done: float, total: float = 1.0, message: str = "") -> None:
    """Say from inside a running task how far it is: `done` of `total`.

    Works in any task, from any thread of it, and in scripts; where several tasks share
    a process, from the thread that was given the task. Where no task runs, because the
    function was called right here, it does nothing.
    """
    tasks = at_hand.get(())
    context = tasks[0] if tasks else _context
    if context is not None:
        context.progress(done / total if total else 1.0, message)
    elif os.environ.get("CORRAL_SCRIPT"):
        # A script speaks to its worker by what it prints.
        words = " ".join(str(message).split())
        sys.stdout.write(f"::progress {done}/{total} {words}".rstrip() + "\n")
        sys.stdout.flush()
