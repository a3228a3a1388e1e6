"""The JSON shapes of the gateway's apps."""

from __future__ import annotations

from msgspec import Struct


class AppIn(Struct, forbid_unknown_fields=True):
    """`timeout` is how many seconds the app may be silent."""

    name: str
    url: str
    timeout: float = 60.0
    concurrency: int = 64


class RouteIn(Struct, forbid_unknown_fields=True):
    path: str
    timeout: float


class AppGone(Struct):
    message: str
    app: str
