"""Plots hold what they were given, whatever that is."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from corral.sim.chart import Bars, Curves, Panel, svg, terminal_bars


def test_bars_are_as_long_as_their_values() -> None:
    title, one, two, none = terminal_bars(
        Bars("seconds", [("a", 10.0), ("long", 5.0), ("none", 0.0)]), width=8
    )
    assert title == "seconds"
    assert one == "  a    ████████ 10"
    assert two == "  long ████ 5"
    assert none == "  none  0"


def test_no_bars_are_no_lines() -> None:
    assert terminal_bars(Bars("nothing", [])) == ["nothing"]


@pytest.mark.parametrize(
    "panel",
    [
        Bars("<b> & 'c'", [("x < y", 1.0), ("z", 0.0)]),
        Bars("empty", []),
        Curves("lines", "s", [("a", [(1.0, 2.0), (10.0, 4.0)]), ("b", [])]),
        Curves("log", "s", [("a", [(0.0, 0.0), (100.0, 99.0)])], is_log=True),
        Curves("one", "s", [("a", [(5.0, 1.0)])]),
        Curves("one", "s", [("a", [(0.0, 1.0)])]),
        Curves("empty", "s", []),
    ],
)
def test_every_panel_is_well_formed(panel: Panel) -> None:
    root = ElementTree.fromstring(svg([panel]))
    assert panel.title in "".join(root.itertext())
    assert "nan" not in svg([panel])
