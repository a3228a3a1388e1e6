"""What commands print: JSON, tables and short words for times and sizes.

Results go to stdout, everything else to stderr. Text from elsewhere never reaches the
terminal with control characters in it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, TextIO, TypeVar

import typer

from corral.cli.terminal.errors import one_line

if TYPE_CHECKING:
    from rich.table import Table

    from corral.wire.value import PlainValue

T = TypeVar("T")
ListedT = TypeVar("ListedT", bound="PlainValue | dict[str, Any]")
Columns = Mapping[str, Callable[[T], Any]]
"""The headings of a table, each with what stands below it for one value."""
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RawFlag = Annotated[
    bool, typer.Option("--raw", help="Leave control characters in it, on a terminal.")
]
# What moves a cursor, begins an escape sequence, or turns the order of letters round.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

_STYLE_OF = {
    "completed": "green",
    "healthy": "green",
    "online": "green",
    "running": "cyan",
    "busy": "cyan",
    "queued": "yellow",
    "suspect": "yellow",
    "cancelled": "dim",
    "left": "dim",
    "failed": "red",
    "error": "red",
    "timed_out": "red",
    "offline": "red",
}


def echo_json(value: Any, *, indent: int | None = 2) -> None:
    """Print a JSON value; characters the terminal cannot show are escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=indent)
    if sys.stdout.isatty():
        # JSON leaves some as they are, and reads them like this as well.
        text = _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    typer.echo(text)


def visible(text: str, target: TextIO, *, is_raw: bool = False) -> str:
    """What a task wrote, as `target` may have it: nothing acts on a terminal.

    Its sequences could paint over what others wrote, or type for whoever reads.
    """
    if is_raw or not target.isatty():
        return text
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def echo_values(values: Iterable[PlainValue | dict[str, Any]]) -> None:
    echo_json([v if isinstance(v, dict) else v.to_dict() for v in values])


def show_list(
    values: Sequence[ListedT],
    columns: Columns[ListedT],
    *,
    as_json: bool,
    none: str = "",
) -> None:
    """Print what a command lists: as JSON, as a table, or that there is `none`."""
    if as_json:
        echo_values(values)
    elif values or not none:
        print_grid(list_grid(values, columns))
    else:
        hint(none)


def list_grid(values: Iterable[T], columns: Columns[T]) -> Table:
    rows = ([words(value) for words in columns.values()] for value in values)
    return table_grid(tuple(columns), rows)


def hint(text: str) -> None:
    typer.echo(text, err=True)


def print_grid(grid: Table) -> None:
    """A terminal gets what fits; a pipe gets whole rows without padding."""
    from rich.console import Console

    if sys.stdout.isatty():
        Console(markup=False, highlight=False, emoji=False).print(grid)
        return
    console = Console(width=10_000, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        console.print(grid)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows under headings; a cell that is a known state gets its colour."""
    print_grid(table_grid(columns, rows))


def table_grid(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        grid.add_column(column, overflow="fold")
    for row in rows:
        cells = [cell(value) for value in row]
        grid.add_row(*(Text(text, style_of(text)) for text in cells))
    return grid


def facts(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print names and values below each other; empty values are left out."""
    print_grid(facts_grid(pairs))


def facts_grid(pairs: Iterable[tuple[str, Any]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        text = cell(value)
        if text:
            grid.add_row(Text(name), Text(text, style_of(text.split(" ")[0])))
    return grid


def style_of(state: str) -> str:
    """The colour of a known state; none for other words."""
    return _STYLE_OF.get(state, "")


def cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, float):
        return f"{value:g}"
    return one_line(str(value))


def age(at: datetime | None, now: datetime | None = None) -> str:
    if at is None:
        return ""
    return took(((now or datetime.now(UTC)) - at).total_seconds())


def ago(at: datetime | None, now: datetime | None = None) -> str:
    return f"{age(at, now)} ago" if at else ""


def took(seconds: float | None) -> str:
    """A duration in its largest sensible unit."""
    if seconds is None:
        return ""
    seconds = max(seconds, 0.0)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} %"


def size_of(size: int) -> str:
    """Bytes in their largest sensible unit."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
