"""The only room that knows Celery and Redis.

`celery -A corral.engine ...` finds the application here; it is made on first use, so
importing this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from celery import Celery

    app: Celery

_made: dict[str, Any] = {}


def __getattr__(name: str) -> Any:
    if name not in ("app", "celery"):
        raise AttributeError(name)
    if "app" not in _made:
        from corral.engine.celery_app import local_app

        _made["app"] = local_app()
    return _made["app"]
