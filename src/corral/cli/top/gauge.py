"""Bars and trends made of characters, for shares from 0 to 100."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

_PARTS = " ▏▎▍▌▋▊▉█"
_STEPS = "▁▂▃▄▅▆▇█"
_HIGH, _FULL = 70.0, 90.0


def colour(percent: float) -> str:
    """Green, then yellow, then red as it fills."""
    if percent >= _FULL:
        return "red"
    return "yellow" if percent >= _HIGH else "green"


def bar(percent: float | None, width: int, label: str = "") -> Text:
    """A bar of so many characters, with words behind it; blank when unknown."""
    from rich.text import Text

    if percent is None:
        return Text(f"{'':{width}} {label}".rstrip(), "dim")
    share = min(max(percent, 0.0), 100.0)
    eighths = round(share / 100 * width * 8)
    whole, part = divmod(eighths, 8)
    drawn = "█" * whole + (_PARTS[part] if part else "")
    text = Text().append(drawn, colour(share))
    text.append("░" * (width - len(drawn)), "dim")
    return text.append(f" {label}") if label else text


def trend(values: Sequence[float | None], width: int, top: float | None = None) -> Text:
    """The last values as a line of small columns, up to `top` or their own highest."""
    from rich.text import Text

    last = list(values)[-width:]
    highest = top or max((v for v in last if v is not None), default=0.0)
    text = Text(" " * (width - len(last)))
    for value in last:
        if value is None:
            text.append(" ")
            continue
        share = min(value / highest, 1.0) if highest else 0.0
        step = _STEPS[min(int(share * len(_STEPS)), len(_STEPS) - 1)]
        text.append(step, colour(share * 100) if top else "cyan")
    return text
