"""What a list of `corral top` is made of: columns that know their cells and order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from corral.cli import show

if TYPE_CHECKING:
    from rich.text import Text

T = TypeVar("T")

REST = -1
"""The width of the one column that takes what the others leave."""
_LEAST = 8
_PAD = 2


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

    text = Text(show.cell(value), style)
    text.truncate(width, overflow="ellipsis")
    return text


def tail(value: Any, width: int) -> Text:
    """A cell of words whose end tells more than its beginning."""
    text = show.cell(value)
    return plain(text if len(text) <= width else f"…{text[1 - width :]}", width)


def number(value: Any, width: int, style: str = "") -> Text:
    """A cell of figures, to the right."""
    text = plain(value, width, style)
    text.pad_left(max(width - text.cell_len, 0))
    return text


def state(value: str, width: int) -> Text:
    """A state, in its colour."""
    return plain(value, width, show.style_of(value.split(",")[0]))
