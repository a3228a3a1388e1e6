"""Windows of maintenance: when they last, and how those that overlap are one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from corral.core.nodes.node import Window
from corral.errors import InvalidField
from corral.manager.nodes.windows import (
    WindowWatch,
    check,
    current,
    is_over,
    next_start,
)

NOON = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def once(name: str, start: datetime, hours: float, **more: object) -> Window:
    return Window(name, hours * 3600, starts_at=start, **more)  # type: ignore[arg-type]


def until(windows: list[Window], now: datetime) -> datetime | None:
    hold = current(windows, now)
    return hold.until if hold else None


def test_a_window_lasts_from_its_start_to_before_its_end() -> None:
    window = [once("w", NOON, 2)]
    assert current(window, NOON - timedelta(seconds=1)) is None
    assert until(window, NOON) == NOON + 2 * HOUR
    assert until(window, NOON + 2 * HOUR - timedelta(seconds=1)) is not None
    assert current(window, NOON + 2 * HOUR) is None
    assert is_over(window[0], NOON + 2 * HOUR)


def test_windows_that_overlap_or_meet_are_one() -> None:
    windows = [
        once("a", NOON, 2),
        once("b", NOON + HOUR, 2, drain=False),
        once("c", NOON + 3 * HOUR, 1),
        once("d", NOON + 5 * HOUR, 1),
    ]
    hold = current(windows, NOON)
    assert hold is not None
    assert (hold.until, hold.drain, hold.by) == (NOON + 4 * HOUR, True, "a")
    hold = current(windows, NOON + 1.5 * HOUR)
    assert hold is not None
    assert (hold.since, hold.by) == (NOON, "a, b")
    hold = current(windows, NOON + 2.5 * HOUR)
    assert hold is not None
    assert (hold.drain, hold.by) == (False, "b")


def test_a_cron_line_is_read_in_its_time_zone_also_when_clocks_change() -> None:
    window = Window("w", 3600, cron="0 3 * * *", timezone="Europe/Berlin")
    # Clocks go forward on 2026-03-29: three o'clock is at one UTC from then on.
    before = datetime(2026, 3, 28, 2, 0, tzinfo=UTC)
    after = datetime(2026, 3, 30, 1, 0, tzinfo=UTC)
    assert until([window], before) == before + HOUR
    assert until([window], after) == after + HOUR
    assert current([window], after + HOUR) is None
    assert next_start(window, before) == datetime(2026, 3, 29, 1, 0, tzinfo=UTC)


def test_one_that_never_ends_has_an_end_to_show() -> None:
    window = Window("w", 120, cron="* * * * *")
    end = until([window], NOON)
    assert end is not None
    assert end > NOON + HOUR


def test_it_is_looked_at_again_only_when_something_could_have_changed() -> None:
    watch, windows = WindowWatch(), (once("w", NOON + timedelta(seconds=30), 1),)
    assert watch.look(windows, NOON) is None
    assert watch.look_at == NOON + timedelta(seconds=30)
    assert watch.look(windows, NOON + timedelta(seconds=29)) is None
    assert watch.looked_at == NOON
    assert watch.look(windows, NOON + timedelta(seconds=30)) is not None
    # A clock that was set back.
    assert watch.look(windows, NOON) is None
    assert watch.look((), NOON + timedelta(seconds=40)) is None


@pytest.mark.parametrize(
    "wrong",
    [
        Window("w", 3600),
        Window("w", 3600, cron="0 3 * * *", starts_at=NOON),
        Window("w", 0, cron="0 3 * * *"),
        Window("w", 40 * 86_400, cron="0 3 * * *"),
        Window("w", 3600, cron="no line"),
        Window("w", 3600, cron="0 3 * * *", timezone="Nowhere/Town"),
        Window("a b", 3600, cron="0 3 * * *"),
        Window("w", 3600, starts_at=NOON - HOUR),
    ],
)
def test_a_window_without_a_time_to_come_is_refused(wrong: Window) -> None:
    with pytest.raises(InvalidField):
        check(wrong, NOON)
