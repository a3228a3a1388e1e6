"""Webhooks: who is told when a task has ended.

Pure: which addresses may be reached is judged where they are called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

from corral.errors import InvalidField

MOST = 5
_LONGEST = 2048


@dataclass(frozen=True, slots=True)
class Notice:
    """That `url` is still to be told of the end of a task's run.

    `since` is when that was first tried, `due` when it is tried next.
    """

    task_id: str
    url: str
    run: int = 1
    tries: int = 0
    since: datetime | None = None
    due: datetime | None = None


def check_urls(urls: Sequence[str]) -> None:
    """Raises:
    InvalidField: one of them is no URL that could be called, or they are too many.
    """
    if len(set(urls)) > MOST:
        raise InvalidField(f"at most {MOST} URLs can be notified", field="notify")
    for url in urls:
        _check(url)


def _check(url: str) -> None:
    if len(url) > _LONGEST or not url.isascii() or not url.isprintable() or " " in url:
        raise _refused(f"a URL has at most {_LONGEST} plain characters and no blanks")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _refused(f"{url[:64]!r} is no URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise _refused("it reads http://host/path or https://host/path")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise _refused("it has no user, password or fragment")


def _refused(why: str) -> InvalidField:
    return InvalidField(f"notify: {why}", field="notify")
