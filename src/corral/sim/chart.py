"""Plots: bars for a terminal, and bars and curves as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 300
_LEFT, _TOP, _BOTTOM, _RIGHT = 70, 40, 40, 20
# Told apart by those who do not see all colours, too.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#555555")
_BLOCKS = " ▏▎▍▌▋▊▉█"

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Bars:
    """One figure of several things."""

    title: str
    values: Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Curves:
    """Lines over a common axis; `is_log` spaces it by powers of ten."""

    title: str
    x_label: str
    lines: Sequence[tuple[str, Sequence[Point]]]
    is_log: bool = False


Panel = Bars | Curves


def terminal_bars(bars: Bars, width: int = 40) -> list[str]:
    """A line for each value, the longest of full width."""
    longest = max((value for _, value in bars.values), default=0.0) or 1.0
    space = max((len(name) for name, _ in bars.values), default=0)
    lines = [bars.title]
    for name, value in bars.values:
        eighths = round(8 * width * max(0.0, value) / longest)
        full, rest = divmod(eighths, 8)
        bar = "█" * full + (_BLOCKS[rest] if rest else "")
        lines.append(f"  {name:<{space}} {bar} {value:.4g}")
    return lines


def svg(panels: Sequence[Panel]) -> str:
    """The panels below each other as one picture."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
        f'height="{HEIGHT * len(panels)}" font-family="sans-serif" font-size="12">'
    )
    parts = [head, '<rect width="100%" height="100%" fill="white"/>']
    for number, panel in enumerate(panels):
        drawn = _bars(panel) if isinstance(panel, Bars) else _curves(panel)
        parts.append(f'<g transform="translate(0 {number * HEIGHT})">')
        parts += [_text(_LEFT, 22, panel.title, weight="bold"), *drawn, "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _text(
    x: float, y: float, text: str, anchor: str = "start", weight: str = "normal"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
        f'font-weight="{weight}">{escape(text)}</text>'
    )


def _rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{height:.1f}" fill="{colour}"/>'
    )


def _level(y: float, colour: str) -> str:
    """A line from side to side."""
    ends = f'x1="{_LEFT}" y1="{y:.1f}" x2="{WIDTH - _RIGHT}" y2="{y:.1f}"'
    return f'<line {ends} stroke="{colour}"/>'


def _bars(bars: Bars) -> list[str]:
    """Lying bars, so that names of any length can be read."""
    longest = max((value for _, value in bars.values), default=0.0) or 1.0
    names = 6.5 * max((len(name) for name, _ in bars.values), default=0) + 20
    room = WIDTH - names - 80
    step = (HEIGHT - _TOP - 10) / max(1, len(bars.values))
    thick = min(28.0, step * 0.7)
    parts = []
    for number, (name, value) in enumerate(bars.values):
        y = _TOP + number * step + (step - thick) / 2
        long = room * max(0.0, value) / longest
        middle = y + thick / 2 + 4
        parts += [
            _text(names - 8, middle, name, "end"),
            _rect(names, y, long, thick, COLOURS[number % len(COLOURS)]),
            _text(names + long + 6, middle, f"{value:.4g}"),
        ]
    return parts


def _curves(curves: Curves) -> list[str]:
    points = [point for _, line in curves.lines for point in line]
    if not points:
        return []
    low_x, high_x = min(p[0] for p in points), max(p[0] for p in points)
    if curves.is_log:
        low_x = max(low_x, high_x / 1e6, 1e-9)
    high_y = max(p[1] for p in points) or 1.0
    high_x = max(high_x, low_x * 1.001, low_x + 1e-9)
    axes = _Axes(low_x, high_x, high_y, curves.is_log)
    parts = axes.drawn(curves.x_label)
    for number, (name, line) in enumerate(curves.lines):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in line)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" '
            'stroke-width="1.8"/>'
        )
        y = HEIGHT - _BOTTOM - 12 - 16 * (len(curves.lines) - 1 - number)
        parts += [
            _rect(WIDTH - 240, y - 9, 12, 10, colour),
            _text(WIDTH - 222, y, name),
        ]
    return parts


@dataclass(frozen=True, slots=True)
class _Axes:
    """Where on the picture a value is."""

    low_x: float
    high_x: float
    high_y: float
    is_log: bool

    def x(self, value: float) -> float:
        room = WIDTH - _LEFT - _RIGHT
        if self.is_log:
            span = math.log(self.high_x / self.low_x)
            return _LEFT + room * math.log(max(value, self.low_x) / self.low_x) / span
        return _LEFT + room * (value - self.low_x) / (self.high_x - self.low_x)

    def y(self, value: float) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / self.high_y

    def ticks(self) -> list[float]:
        if self.is_log:
            first = math.ceil(math.log10(self.low_x))
            last = math.floor(math.log10(self.high_x))
            return [10.0**power for power in range(first, last + 1)]
        span = self.high_x - self.low_x
        return [self.low_x + span * n / 5 for n in range(6)]

    def drawn(self, label: str) -> list[str]:
        floor = HEIGHT - _BOTTOM
        parts = [
            _level(floor, "#888"),
            _text(WIDTH - _RIGHT, floor + 32, label, "end"),
        ]
        for tick in self.ticks():
            parts.append(_text(self.x(tick), floor + 16, f"{tick:.4g}", "middle"))
        for n in range(5):
            value = self.high_y * n / 4
            y = self.y(value)
            parts += [
                _level(y, "#eee"),
                _text(_LEFT - 8, y + 4, f"{value:.4g}", "end"),
            ]
        return parts
