"""Which request a task came with: an id that is in every log line about it.

The id is the caller's `X-Request-ID`, else the trace id of its W3C `traceparent`, else
made for the request. A task keeps both in labels of Corral's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

REQUEST = "corral.request"
PARENT = "corral.traceparent"
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Trace:
    """Empty where a task came with no request."""

    request_id: str = ""
    traceparent: str = ""

    def __bool__(self) -> bool:
        return bool(self.request_id)

    @property
    def labels(self) -> dict[str, str]:
        """For the task; none for what is not known."""
        told = {REQUEST: self.request_id, PARENT: self.traceparent}
        return {key: value for key, value in told.items() if value}

    @property
    def headers(self) -> dict[str, str]:
        """For a request that is made for it."""
        told = {"X-Request-ID": self.request_id, "traceparent": self.traceparent}
        return {name: value for name, value in told.items() if value}


NO_TRACE = Trace()


def read_trace(request_id: str | None, traceparent: str | None) -> Trace | None:
    """What a caller said, as far as it makes sense; None when nothing does."""
    found = _PARENT.fullmatch(traceparent) if traceparent else None
    is_known = found is not None and found[1].strip("0") and found[2].strip("0")
    parent = traceparent if traceparent and is_known else ""
    if request_id and _ID.fullmatch(request_id):
        return Trace(request_id, parent)
    return Trace(parent.split("-")[1], parent) if parent else None


def trace_of(labels: Mapping[str, str]) -> Trace:
    request_id = labels.get(REQUEST)
    if request_id is None:
        return NO_TRACE
    return Trace(request_id, labels.get(PARENT, ""))
