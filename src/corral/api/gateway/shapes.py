"""The JSON shapes of the gateway's apps."""

from __future__ import annotations

from datetime import datetime

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


class RouteOut(Struct):
    """A path of an app, and all below it, with a limit of its own."""

    path: str
    timeout: float


class AppOut(Struct):
    name: str
    url: str
    timeout: float
    concurrency: int
    job_types: list[str]
    created_at: datetime | None
    routes: list[RouteOut]


class AppListOut(Struct):
    apps: list[AppOut]


class AppGone(Struct):
    message: str
    app: str
