"""How long ago somebody was at the machine, as each system tells it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from corral.agent.watch import idle

NOW = 1_800_000_000.0


def session(kind: str, hint: str, since_s: float = 0.0, state: str = "active") -> str:
    since = int(since_s * 1e6)
    return f"Type={kind}\nIdleHint={hint}\nIdleSinceHint={since}\nState={state}\n"


@pytest.mark.parametrize(
    ("sessions", "found"),
    [
        ([], None),
        ([session("tty", "no")], None),
        ([session("wayland", "no")], 0.0),
        ([session("x11", "yes", NOW - 900)], 900.0),
        ([session("x11", "yes", NOW - 900), session("wayland", "yes", NOW - 30)], 30.0),
        ([session("x11", "no", state="closing")], None),
        (["Failed to get session: No such file"], None),
    ],
)
def test_graphical_sessions_say_whether_they_are_idle(
    sessions: list[str], found: float | None
) -> None:
    assert idle.read_sessions("\n".join(sessions), NOW) == found


def test_the_terminal_that_was_read_last_counts(tmp_path: Path) -> None:
    (tmp_path / "pts").mkdir()
    for name, ago_s in (("tty1", 700), ("pts/0", 40)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (NOW - ago_s, NOW))
    names = ["tty1", "pts/0", ":0", "gone"]
    assert idle.terminal_idle_s(names, NOW, tmp_path) == pytest.approx(40.0)
    assert idle.terminal_idle_s([":0"], NOW, tmp_path) is None


def test_a_mac_counts_in_nanoseconds() -> None:
    said = '  | |   "HIDIdleTime" = 2500000000\n  | |   "HIDScrollCountMax" = 2000\n'
    assert idle.read_ioreg(said) == 2.5
    assert idle.read_ioreg("") is None


def test_on_this_machine_it_is_a_time_or_unknown() -> None:
    found = idle.idle_s()
    assert found is None or found >= 0.0
