"""Cron lines: the times they mean, in the time zone they are written for.

Clock changes are treated as Debian's cron does. A time of day that a change leaves out
comes at the first moment after it, one that comes twice is taken once; a line that
begins with `*` in minute or hour goes on by the time that really passes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from corral.errors import InvalidField

_WORDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_LONGEST = 200
_FIRST_LOOK = timedelta(minutes=10)


class Cron:
    """A cron line of five fields, or a word like `@daily`.

    Raises:
        InvalidField: it is none, has no time to come, or there is no such time zone.
    """

    def __init__(self, line: str, timezone: str) -> None:
        words = line.split()
        self._line = _WORDS.get(line.strip().lower(), " ".join(words))
        self._zone = zone_of(timezone)
        if len(line) > _LONGEST or len(self._line.split()) != 5:
            raise _refused(line, "it has five fields: minute hour day month weekday")
        try:
            self._explained = self._from(datetime.now(UTC)).explain()
        except CronSimError as error:
            raise _refused(line, str(error)) from None

    @property
    def explained(self) -> str:
        """The line in words."""
        return self._explained

    def after(self, moment: datetime) -> datetime | None:
        """The first time after a moment, in UTC; None when there is none."""
        return next(self._times(moment), None)

    def due(self, first: datetime, now: datetime, most: int) -> list[datetime]:
        """The latest `most` times from `first` to `now`, oldest first."""
        look, start = _FIRST_LOOK, first - timedelta(seconds=1)
        while True:
            # A long silence of a line that comes every minute: from its end, then
            # further and further back, not from its beginning.
            begin = max(start, now - look)
            found: deque[datetime] = deque(maxlen=most)
            for at in self._times(begin):
                if at > now:
                    break
                found.append(at)
            if begin == start or len(found) == most:
                return list(found)
            look *= 4

    def _times(self, moment: datetime) -> Iterator[datetime]:
        for found in self._from(moment):
            at = found.astimezone(UTC)
            # In the hour that a clock change repeats, times of day that have been
            # are found again.
            if at > moment:
                yield at

    def _from(self, moment: datetime) -> CronSim:
        return CronSim(self._line, moment.astimezone(self._zone))


def zone_of(name: str) -> ZoneInfo:
    """Raises InvalidField: there is no such time zone."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidField(
            f"there is no time zone {name[:64]!r}; one reads like Europe/Berlin",
            field="timezone",
        ) from None


def _refused(line: str, why: str) -> InvalidField:
    return InvalidField(f"{line[:64]!r} is no cron line: {why}", field="cron")
