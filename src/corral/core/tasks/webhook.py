"""Webhooks: who is told when a task has ended, and the label that says so.

Pure: which addresses may be reached is judged where they are called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

from corral.core.access.share import GROUP, GROUP_LIMIT, PREEMPTIBLE
from corral.core.nodes.labels import NODE_LABELS, TOLERATES
from corral.core.tasks.needs import NEEDS
from corral.core.tasks.options import GANG, PARENT, PROFILE, REQUEST
from corral.core.tasks.result_cache import CACHE, CACHED, NO_CACHE, SAME
from corral.errors import InvalidField

NOTIFY = "corral.notify"
"""The label that holds a task's webhooks. It is Corral's own: nobody sets, sees or
looks for it as a label."""
OWN = frozenset(
    {
        *(NOTIFY, NODE_LABELS, TOLERATES, GROUP, GROUP_LIMIT, PREEMPTIBLE, NEEDS, GANG),
        *(CACHE, CACHED, NO_CACHE, SAME, REQUEST, PARENT, PROFILE),
    }
)
"""Every label that is Corral's own."""
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


def label_of(urls: Sequence[str]) -> dict[str, str]:
    """The label for these webhooks; no label for none.

    Raises:
        InvalidField: one of them is no URL that could be called.
    """
    unique = tuple(dict.fromkeys(urls))
    if len(unique) > MOST:
        raise InvalidField(f"at most {MOST} URLs can be notified", field="notify")
    for url in unique:
        _check(url)
    return {NOTIFY: " ".join(unique)} if unique else {}


def urls_of(labels: Mapping[str, str]) -> list[str]:
    return labels.get(NOTIFY, "").split()


def public(labels: Mapping[str, str]) -> Mapping[str, str]:
    """The labels as anybody else sees them."""
    if OWN.isdisjoint(labels):
        return labels
    if OWN.issuperset(labels):
        return {}
    return {key: value for key, value in labels.items() if key not in OWN}


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
