"""Draws what was simulated: SVG by our own means, PNG where matplotlib is at hand."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corral.errors import BadRequest
from corral.sim.chart import COLOURS, HEIGHT, WIDTH, Bars, Curves, Panel, svg

if TYPE_CHECKING:
    from corral.sim.scenario import Outcome

_DPI = 100


def panels(found: Sequence[Outcome]) -> list[Panel]:
    """What is to be seen of some outcomes, side by side."""
    named = [(outcome.scenario.name, outcome) for outcome in found]
    return [
        Bars(
            "mean time from arrival to end, s",
            [(name, o.figures.mean_s) for name, o in named],
        ),
        Bars(
            "tasks that ended within 5 times their own run, %",
            [(name, o.figures.slo_pct) for name, o in named],
        ),
        Curves(
            "percentage of tasks that had ended after ...",
            "seconds from arrival",
            [(name, o.curve) for name, o in named],
            is_log=True,
        ),
    ]


def check(path: Path) -> None:
    """Can a picture of this name be drawn?

    Raises:
        BadRequest: it is of a kind we do not know, or matplotlib is not installed.
    """
    if path.suffix not in (".svg", ".png"):
        raise BadRequest(f"{path}: a plot ends in .svg or .png")
    if path.suffix == ".png" and importlib.util.find_spec("matplotlib") is None:
        raise BadRequest("PNG needs matplotlib, which is not here; .svg does not")


def draw(path: Path, found: Sequence[Outcome]) -> None:
    """Write a picture; its name says which kind."""
    if path.suffix == ".svg":
        path.write_text(svg(panels(found)), encoding="utf-8")
    else:
        _draw_png(path, panels(found))


def _draw_png(path: Path, some: Sequence[Panel]) -> None:
    figure: Any = importlib.import_module("matplotlib.figure")
    size = (WIDTH / _DPI, HEIGHT * len(some) / _DPI)
    sheet = figure.Figure(figsize=size, dpi=_DPI, layout="constrained")
    for axes, panel in zip(sheet.subplots(len(some)), some, strict=True):
        axes.set_title(panel.title)
        if isinstance(panel, Bars):
            names = [name for name, _ in panel.values]
            values = [value for _, value in panel.values]
            colours = [COLOURS[n % len(COLOURS)] for n in range(len(names))]
            axes.barh(names[::-1], values[::-1], color=colours[::-1])
        else:
            _draw_curves(axes, panel)
    sheet.savefig(path)


def _draw_curves(axes: Any, panel: Curves) -> None:
    for number, (name, line) in enumerate(panel.lines):
        colour = COLOURS[number % len(COLOURS)]
        axes.plot([x for x, _ in line], [y for _, y in line], label=name, color=colour)
    if panel.is_log:
        axes.set_xscale("log")
    axes.set_xlabel(panel.x_label)
    axes.legend()
