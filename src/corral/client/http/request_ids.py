"""Which request this code works for: what it asks of a manager carries the same ids.

In a worker that is the request of the task at hand. Scripts, and programs that a shell
starts, are told by their environment: CORRAL_REQUEST_ID and TRACEPARENT.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from corral.core.tasks.options import NO_TRACE, Trace, read_trace


def _nobody() -> Trace:
    return NO_TRACE


_find: Callable[[], Trace] = _nobody


def find_by(find: Callable[[], Trace]) -> None:
    """`find` is asked for every request: where tasks run, another one may be by now."""
    global _find
    _find = find


def headers() -> dict[str, str]:
    """What a request says of where it comes from; nothing where nothing is known."""
    return (_find() or _told() or NO_TRACE).headers


def _told() -> Trace | None:
    return read_trace(
        os.environ.get("CORRAL_REQUEST_ID"), os.environ.get("TRACEPARENT")
    )
