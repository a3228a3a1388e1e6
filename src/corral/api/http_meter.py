"""Counts requests and their times, by route and never by path."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.types import Scope

from corral.manager.insight.prometheus import Counter, Family, Histogram

_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
_NOWHERE = "none"
_MOST_ROUTES = 500
# Requests may wait a minute for a task, and streams last longer.
_BUCKETS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)


class HttpMeter:
    """One for an application."""

    def __init__(self) -> None:
        self._requests = Counter(
            "http_requests_total",
            "Requests answered.",
            ("endpoint", "method", "status"),
            _MOST_ROUTES,
        )
        self._seconds = Histogram(
            "http_request_duration_seconds",
            "From the head of a request to the end of its answer.",
            ("endpoint", "method"),
            _BUCKETS,
            _MOST_ROUTES,
        )

    def add(self, scope: Scope, status: int, took_s: float) -> None:
        """`scope` is that of a request the application has answered."""
        endpoint = getattr(scope.get("route"), "path", _NOWHERE)
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._requests.add(endpoint, method, str(status))
        self._seconds.add(took_s, endpoint, method)

    def families(self) -> Iterator[Family]:
        yield self._requests
        yield self._seconds
