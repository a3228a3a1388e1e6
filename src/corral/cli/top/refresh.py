"""Brings pictures of the cluster to whoever shows them, from threads of its own.

Pictures come as things change, where the manager tells events, and at least every few
seconds. A manager that is away is asked again and again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from corral.cli.top.picture import ClusterView, read
from corral.errors import AuthError, CorralError

if TYPE_CHECKING:
    from corral.client import Client

_EVERY_S = 1.0
_HEARING_S = 2.0
_LEAST_S = 0.25
_AGAIN_S = 1.0
_LEAVE_S = 6.0
_NOT_THERE = (403, 404, 405)


@dataclass(frozen=True, slots=True)
class ViewFailed:
    """No picture came; `is_final` when none will, as with a wrong key."""

    error: CorralError
    is_final: bool = False


News = ClusterView | ViewFailed


class ClusterViewReader:
    """Reads pictures until it is stopped; `tell` is called from its thread.

    The client should not insist by itself: the feed does.
    """

    def __init__(self, client: Client, tell: Callable[[News], object]) -> None:
        self._client = client
        self._tell = tell
        self._wake, self._end = threading.Event(), threading.Event()
        self._chosen: str | None = None
        self._is_hearing = False
        self._threads = [
            threading.Thread(target=work, name=f"top-{name}", daemon=True)
            for name, work in (("reader", self._read), ("listener", self._listen))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Bring nothing more; a question that is under way may still be answered."""
        self._end.set()
        self._wake.set()
        self._threads[0].join(_LEAVE_S)

    def choose(self, task_id: str | None) -> None:
        """Bring all about this task, too."""
        if task_id != self._chosen:
            self._chosen = task_id
            self.wake()

    def wake(self) -> None:
        """Bring the next picture soon."""
        self._wake.set()

    def _read(self) -> None:
        while not self._end.is_set():
            self._wake.clear()
            began = time.monotonic()
            news = self._look()
            if self._end.is_set():
                return
            self._tell(news)
            if isinstance(news, ViewFailed) and news.is_final:
                return
            took_s = time.monotonic() - began
            # Never more than half of the time, however large the cluster is.
            self._end.wait(max(_LEAST_S, took_s))
            self._wake.wait(_HEARING_S if self._is_hearing else _EVERY_S)

    def _look(self) -> News:
        try:
            return read(self._client, self._chosen)
        except AuthError as error:
            return ViewFailed(error, is_final=True)
        except CorralError as error:
            return ViewFailed(error)

    def _listen(self) -> None:
        """Hear that something changed; what it is, the next picture tells."""
        while not self._end.is_set():
            try:
                for _ in self._client.live_events(detail="summary"):
                    if self._end.is_set():
                        return
                    self._is_hearing = True
                    self.wake()
            except CorralError as error:
                self._is_hearing = False
                self.wake()
                if getattr(error, "status", None) in _NOT_THERE:
                    return
            self._end.wait(_AGAIN_S)
