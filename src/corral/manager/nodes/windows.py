"""Times of maintenance: which of a node's windows last now, and until when.

Pure: what is done about them is decided where nodes are held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from corral.core.nodes.node import Hold, HoldSource, Window
from corral.core.tasks.job_type import check_name
from corral.errors import InvalidField
from corral.manager.cron import Cron

MOST = 50
LONGEST_S = 30 * 86_400.0
_LONGEST_CHAIN = 100
_LOOK_AGAIN = timedelta(seconds=60)


def check(window: Window, now: datetime) -> None:
    """Raises InvalidField: it has no time, two, or one that is over."""
    check_name(window.name, "name")
    if not 1 <= window.duration_s <= LONGEST_S:
        raise InvalidField("duration is 1 second to 30 days", field="duration")
    if (window.cron is None) == (window.starts_at is None):
        raise InvalidField("give cron or starts_at", field="cron")
    if window.starts_at is not None and _end(window, window.starts_at) <= now:
        raise InvalidField("this window is over already", field="starts_at")
    if window.cron is not None:
        Cron(window.cron, window.timezone)


def is_over(window: Window, now: datetime) -> bool:
    """It came once and comes no more."""
    return window.starts_at is not None and _end(window, window.starts_at) <= now


def current(windows: Sequence[Window], now: datetime) -> Hold | None:
    """One hold for all windows that last now, until the last of them is over.

    A window that begins before another has ended makes one with it.
    """
    running = [
        (window, start)
        for window in windows
        for start in _starts(window, now - _length(window), now)
        if now < _end(window, start)
    ]
    if not running:
        return None
    until = max(_end(window, start) for window, start in running)
    words = [w.reason or w.name for w, _ in running]
    return Hold(
        HoldSource.WINDOW,
        ", ".join(dict.fromkeys(words)),
        drain=any(window.drain for window, _ in running),
        since=min(start for _, start in running),
        until=_merged(windows, now, until),
        by=", ".join(dict.fromkeys(window.name for window, _ in running)),
    )


def next_start(window: Window, now: datetime) -> datetime | None:
    """When it begins next."""
    if window.cron is not None:
        return Cron(window.cron, window.timezone).after(now)
    return window.starts_at if window.starts_at and window.starts_at > now else None


def _merged(windows: Sequence[Window], now: datetime, until: datetime) -> datetime:
    # A line that comes every minute and lasts two never ends: enough is enough.
    for _ in range(_LONGEST_CHAIN):
        ends = [_end(w, start) for w in windows for start in _starts(w, now, until)]
        if not ends or max(ends) <= until:
            break
        until = max(ends)
    return until


def _starts(window: Window, first: datetime, last: datetime) -> Iterator[datetime]:
    """The latest time from `first` to `last` at which it begins, if there is one."""
    if window.cron is not None:
        yield from Cron(window.cron, window.timezone).due(first, last, 1)
    elif window.starts_at is not None and first <= window.starts_at <= last:
        yield window.starts_at


def _length(window: Window) -> timedelta:
    return timedelta(seconds=window.duration_s)


def _end(window: Window, start: datetime) -> datetime:
    return start + _length(window)


@dataclass(slots=True)
class WindowWatch:
    """One node's windows, looked at only when the clock could have changed them."""

    windows: tuple[Window, ...] = ()
    hold: Hold | None = None
    looked_at: datetime | None = None
    look_at: datetime | None = None

    def look(self, windows: tuple[Window, ...], now: datetime) -> Hold | None:
        """The hold of the windows that last now."""
        if windows is not self.windows or not self._is_good(now):
            self.windows, self.hold = windows, current(windows, now)
            self.looked_at, self.look_at = now, self._next(now)
        return self.hold

    def _is_good(self, now: datetime) -> bool:
        if self.looked_at is None or self.look_at is None:
            return False
        # A clock that was set back makes what was seen then worthless.
        return self.looked_at <= now < self.look_at

    def _next(self, now: datetime) -> datetime:
        starts = [at for w in self.windows if (at := next_start(w, now)) is not None]
        ends = [self.hold.until] if self.hold and self.hold.until else []
        lasting = [
            _end(w, start)
            for w in self.windows
            for start in _starts(w, now - _length(w), now)
        ]
        later = (at for at in (*starts, *ends, *lasting) if at > now)
        return min((now + _LOOK_AGAIN, *later))
