"""The times a cron line means, also on the days the clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from corral.errors import InvalidField
from corral.manager.cron import Cron

BERLIN = "Europe/Berlin"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def times(cron: Cron, start: str, count: int) -> list[str]:
    moment, found = at(start), []
    for _ in range(count):
        after = cron.after(moment)
        assert after is not None
        moment = after
        found.append(moment.strftime("%d %H:%M"))
    return found


def test_a_line_is_read_in_its_time_zone() -> None:
    cron = Cron("0 3 * * *", BERLIN)
    assert cron.after(at("2026-01-10 12:00")) == at("2026-01-11 02:00")
    assert cron.after(at("2026-07-10 12:00")) == at("2026-07-11 01:00")


def test_a_time_of_day_the_clock_leaves_out_comes_once_right_after() -> None:
    # On 29 March 2026 it is 03:00 in Berlin after 01:59.
    assert times(Cron("30 2 * * *", BERLIN), "2026-03-28 12:00", 2) == [
        "29 01:00",
        "30 00:30",
    ]


def test_a_time_of_day_the_clock_repeats_comes_once() -> None:
    # On 25 October 2026 it is 02:00 in Berlin after 02:59.
    cron = Cron("30 2 * * *", BERLIN)
    assert times(cron, "2026-10-24 12:00", 2) == ["25 00:30", "26 01:30"]
    inside = at("2026-10-25 01:10")
    assert cron.after(inside) == at("2026-10-26 01:30")


def test_every_half_hour_goes_on_by_the_time_that_passes() -> None:
    cron = Cron("*/30 * * * *", BERLIN)
    autumn = ["25 00:00", "25 00:30", "25 01:00", "25 01:30", "25 02:00"]
    assert times(cron, "2026-10-24 23:40", 5) == autumn
    spring = ["29 00:30", "29 01:00", "29 01:30"]
    assert times(cron, "2026-03-29 00:10", 3) == spring


def test_what_is_due_is_found_from_its_end() -> None:
    cron = Cron("* * * * *", "UTC")
    now = at("2026-06-01 00:00")
    latest = cron.due(at("2020-01-01 00:00"), now, 1000)
    assert len(latest) == 1000
    assert latest[-1] == now
    assert latest[0] == now - timedelta(minutes=999)
    rare = Cron("0 0 29 2 *", "UTC")
    assert rare.due(at("2021-01-01 00:00"), now, 1) == [at("2024-02-29 00:00")]
    assert rare.due(at("2025-01-01 00:00"), now, 1) == []


def test_words_stand_for_lines() -> None:
    assert Cron("@daily", "UTC").after(at("2026-01-01 05:00")) == at("2026-01-02 00:00")
    assert Cron("30 2 * * *", "UTC").explained == "At 02:30 every day"


@pytest.mark.parametrize(
    "line",
    ["", "* * * *", "* * * * * *", "60 * * * *", "x * * * *", "0 0 30 2 *", "* " * 500],
)
def test_what_is_no_line_is_refused(line: str) -> None:
    with pytest.raises(InvalidField) as refusal:
        Cron(line, "UTC")
    assert refusal.value.field == "cron"


@pytest.mark.parametrize("zone", ["", "Mars/Olympus", "Europe", "../UTC", "a\0b"])
def test_a_time_zone_that_is_none_is_refused(zone: str) -> None:
    with pytest.raises(InvalidField) as refusal:
        Cron("@daily", zone)
    assert refusal.value.field == "timezone"
