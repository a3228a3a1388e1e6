"""What a list of `corral top` is made of: columns that know their cells and order; bars
and trends made of characters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from corral.cli.terminal import output

if TYPE_CHECKING:
    from rich.text import Text


T = TypeVar("T")

REST = -1
"""The width of the one column that takes what the others leave."""
_LEAST = 8
_PAD = 2
_PARTS = " ▏▎▍▌▋▊▉█"
_STEPS = "▁▂▃▄▅▆▇█"
_HIGH, _FULL = 70.0, 90.0


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """`narrow` and `roomy` are widths; 0 leaves the column out."""

    title: str
    cell: Callable[[T, int], Text]
    order: Callable[[T], Any]
    narrow: int
    roomy: int
    is_right: bool = False


@dataclass(frozen=True, slots=True)
class Sheet(Generic[T]):
    """A list: `key` tells rows apart, `words` are what a filter looks at."""

    name: str
    columns: Sequence[Column[T]]
    key: Callable[[T], str]
    words: Callable[[T], str]

    def fit(self, width: int) -> list[tuple[Column[T], int]]:
        """The columns that fit into so many characters, with their widths."""
        roomy = [(c, c.roomy) for c in self.columns if c.roomy]
        narrow = [(c, c.narrow) for c in self.columns if c.narrow]
        chosen = roomy if _taken(roomy) + _LEAST <= width else narrow
        left = max(width - _taken(chosen), _LEAST)
        return [(c, left if size == REST else size) for c, size in chosen]

    def arrange(
        self, rows: Sequence[T], words: str, sort: int | None, is_reversed: bool
    ) -> list[T]:
        """The rows that have the words, in the order that is asked for."""
        wanted = words.casefold().split()
        found = [r for r in rows if _has(self.words(r), wanted)]
        if sort is None:
            return found[::-1] if is_reversed else found
        return sorted(found, key=self.columns[sort].order, reverse=is_reversed)


def _taken(columns: Sequence[tuple[Column[T], int]]) -> int:
    return sum(max(size, 0) + _PAD for _, size in columns)


def _has(text: str, wanted: Sequence[str]) -> bool:
    folded = text.casefold()
    return all(word in folded for word in wanted)


def plain(value: Any, width: int, style: str = "") -> Text:
    """A cell of words: one line, cut with an ellipsis where it is too long."""
    from rich.text import Text

    text = Text(output.cell(value), style)
    text.truncate(width, overflow="ellipsis")
    return text


def tail(value: Any, width: int) -> Text:
    """A cell of words whose end tells more than its beginning."""
    text = output.cell(value)
    return plain(text if len(text) <= width else f"…{text[1 - width :]}", width)


def number(value: Any, width: int, style: str = "") -> Text:
    """A cell of figures, to the right."""
    text = plain(value, width, style)
    text.pad_left(max(width - text.cell_len, 0))
    return text


# The usual columns: what a cell says is what sorts it, the most of it first.


def words(
    title: str,
    value: Callable[[T], str],
    narrow: int,
    roomy: int,
    style: Callable[[T], str] = lambda row: "",
) -> Column[T]:
    def cell(row: T, width: int) -> Text:
        return plain(value(row), width, style(row))

    return Column(title, cell, value, narrow, roomy)


def states(title: str, value: Callable[[T], str], narrow: int, roomy: int) -> Column[T]:
    """Each in its colour."""
    return words(title, value, narrow, roomy, lambda row: _style(value(row)))


def figures(
    title: str,
    value: Callable[[T], float | None],
    narrow: int,
    roomy: int,
    shown: Callable[[T], Any] | None = None,
    style: str = "",
) -> Column[T]:
    """To the right; `shown` is the figure as it is written, else it itself."""

    def cell(row: T, width: int) -> Text:
        return number((shown or value)(row), width, style)

    return Column(title, cell, _most(value), narrow, roomy, is_right=True)


def shares(
    title: str, value: Callable[[T], float | None], narrow: int, roomy: int
) -> Column[T]:
    """A bar for 0 to 100."""

    def cell(row: T, width: int) -> Text:
        percent = value(row)
        label = "   - " if percent is None else f"{percent:3.0f} %"
        return bar(percent, width - 6, label)

    return Column(title, cell, _most(value), narrow, roomy)


def _most(value: Callable[[T], float | None]) -> Callable[[T], float]:
    return lambda row: -(value(row) or 0)


def _style(state: str) -> str:
    return output.style_of(state.split(",")[0])


# Bars and trends made of characters, for shares from 0 to 100.


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
