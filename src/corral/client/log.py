"""The calls about what a task says while it runs: its log, and how far it is."""

from __future__ import annotations

from typing import Any

import msgspec

from corral.client.exchange import Items, Stream, get, segment
from corral.client.fault import decode
from corral.client.task import POLL_S, TaskRef, id_of
from corral.client.value import LogLine, Progress

_UNKNOWN = -1.0


class _Page(msgspec.Struct):
    lines: list[LogLine]
    cursor: str | None = None
    done: bool = False
    progress: Progress | None = None


def logs(
    task: TaskRef,
    *,
    follow: bool = False,
    attempt: int | None = None,
    tail: int | None = None,
) -> Stream[LogLine]:
    """The lines a task printed; with `follow`, also those to come until it ends.

    Each line comes once and in order, through lost connections and restarts of the
    manager. `attempt` asks for one attempt only, `tail` for the last so many lines
    of what is there.
    """
    return _pages(task, POLL_S if follow else 0.0, None, attempt=attempt, tail=tail)


def follow(
    task: TaskRef, *, attempt: int | None = None, tail: int | None = None
) -> Stream[LogLine | Progress]:
    """What a task prints until it ends, and a Progress when it says how far it is."""
    return _pages(task, POLL_S, _UNKNOWN, attempt=attempt, tail=tail)


def _pages(
    task: TaskRef, wait_s: float, known: float | None, **where: int | str | None
) -> Stream[Any]:
    path = f"/tasks/{segment(id_of(task))}/logs"
    while True:
        response = yield get(
            path, wait_s=wait_s, wait=wait_s or None, progress=known, **where
        )
        # Times may come as seconds since the epoch here.
        page = decode(response, _Page, strict=False)
        if page.lines:
            yield Items(page.lines)
        if known is not None and page.progress and page.progress.fraction is not None:
            if page.progress.fraction != known:
                yield Items([page.progress])
            known = page.progress.fraction
        if page.done or not (wait_s or page.lines):
            return
        where = {"attempt": where["attempt"], "after": page.cursor}
