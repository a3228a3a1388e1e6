"""One list on the screen of `corral top`: a title, and rows that stay where they are
while their figures change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.coordinate import Coordinate
from textual.widgets import DataTable, Static

from corral.cli.top.cells import Column, Sheet

T = TypeVar("T")
_BAR = 1
_MOST = 200
"""Rows at most: nobody reads more, and each costs time at every picture."""


class Pane(Vertical, Generic[T]):
    """Shows rows of a sheet, filtered and sorted."""

    def __init__(self, sheet: Sheet[T]) -> None:
        super().__init__(id=sheet.name)
        self._sheet = sheet
        self._rows: Sequence[T] = ()
        self._shown: list[T] = []
        self._fitted: list[tuple[Column[T], int]] = []
        self._keys: list[str] = []
        self._cells: list[list[Text]] = []
        self._sort: int | None = None
        self._is_reversed = False
        self._words = ""
        self._says = ""
        self._found = 0
        self._head = Static(classes="title")
        self.table = DataTable[Text](
            cursor_type="row", zebra_stripes=False, show_cursor=False
        )

    def compose(self) -> ComposeResult:
        yield self._head
        yield self.table

    @property
    def chosen(self) -> T | None:
        """The row under the cursor."""
        at = self.table.cursor_row
        return self._shown[at] if 0 <= at < len(self._shown) else None

    def show_rows(self, rows: Sequence[T], says: str) -> None:
        """Show these, under a title that says so."""
        self._rows, self._says = rows, says
        # One that is not seen is drawn when it is: its size changes then.
        if self.display:
            self._draw()

    def filter(self, words: str) -> None:
        self._words = words
        self._draw()

    def sort_by_next(self) -> None:
        """By the next column; after the last one, as they came."""
        shown = [self._sheet.columns.index(c) for c, _ in self._fitted]
        later = [n for n in shown if self._sort is None or n > self._sort]
        self._sort = later[0] if later else None
        self._is_reversed = False
        self._draw(anew=True)

    def reverse(self) -> None:
        self._is_reversed = not self._is_reversed
        self._draw(anew=True)

    def on_resize(self, _: events.Resize) -> None:
        self._draw(anew=True)

    def on_descendant_focus(self) -> None:
        self.table.show_cursor = True

    def on_descendant_blur(self) -> None:
        self.table.show_cursor = False

    def _draw(self, *, anew: bool = False) -> None:
        at = self.table.cursor_row
        held = self._keys[at] if 0 <= at < len(self._keys) else None
        if anew or not self._fitted:
            self._set_columns()
        found = self._sheet.arrange(
            self._rows, self._words, self._sort, self._is_reversed
        )
        self._found, self._shown = len(found), found[:_MOST]
        self._fill([self._sheet.key(row) for row in self._shown], held)
        self._head.update(self._title())

    def _title(self) -> Text:
        text = Text(" ").append(f"{self._sheet.name.upper()}  ", "bold")
        text.append(self._says)
        if self._words:
            text.append(f"  {self._found} of {len(self._rows)}: {self._words}")
        if self._found > _MOST:
            text.append(f"  (the first {_MOST})")
        text.truncate(max(self.size.width, 1), overflow="ellipsis")
        return text

    def _set_columns(self) -> None:
        """Columns as wide as there is room for; a mark says which one sorts."""
        width = self.size.width - _BAR
        if width <= 0:
            return
        self._fitted, self._keys = self._sheet.fit(width), []
        self.table.clear(columns=True)
        for column, size in self._fitted:
            self.table.add_column(self._label(column, size), width=size)

    def _label(self, column: Column[T], width: int) -> Text:
        mark = ""
        if self._sort is not None and self._sheet.columns[self._sort] is column:
            mark = "▲" if self._is_reversed else "▼"
        title = f"{column.title}{mark}"
        return Text(f"{title:>{width}}" if column.is_right else title)

    def _fill(self, keys: list[str], held: str | None) -> None:
        """The cursor stays on the row it was on, wherever that is now."""
        cells = [[c.cell(row, w) for c, w in self._fitted] for row in self._shown]
        if not self._fitted:
            return
        if keys == self._keys:
            self._update(cells)
            return
        table, at, place = self.table, self.table.cursor_row, self.table.scroll_y
        table.clear()
        for key, line in zip(keys, cells, strict=True):
            table.add_row(*line, key=key)
        self._keys, self._cells = keys, cells
        row = keys.index(held) if held in keys else min(at, len(keys) - 1)
        table.scroll_to(y=place, animate=False)
        table.move_cursor(row=max(row, 0))

    def _update(self, cells: list[list[Text]]) -> None:
        for y, (line, old) in enumerate(zip(cells, self._cells, strict=True)):
            for x, (cell, before) in enumerate(zip(line, old, strict=True)):
                if cell != before or cell.spans != before.spans:
                    self.table.update_cell_at(Coordinate(y, x), cell)
        self._cells = cells
