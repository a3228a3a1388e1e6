"""Arrays: many tasks made from one, by numbers or by the rows of a file.

Pure but for reading that file: what is made here is sent by `submit_batch`. Each task
gets an idempotency key from the array's id and its place, so that sending the same
array again makes no task twice.
"""

from __future__ import annotations

import csv
import itertools
import math
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.core.tasks.job_type import check_name
from corral.core.tasks.script import (
    ARRAY_COUNT,
    ARRAY_ID,
    ARRAY_INDEX,
)
from corral.core.tasks.script import (
    JOB_TYPE as SCRIPT,
)
from corral.errors import InvalidField

LABEL = "array"
INDEX_LABEL = "array.index"
MOST = 100_000
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")
_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]{0,63})\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Cell:
    """A value, and how it reads inside a longer text."""

    value: Any
    text: str


@dataclass(frozen=True, slots=True)
class ArrayRow:
    """What one task of an array has of its own."""

    index: int
    cells: Mapping[str, Cell]


def new_array_id() -> str:
    return f"a-{secrets.token_hex(6)}"


def read_limit(text: str) -> tuple[str, int | None]:
    """The range of `0-99%10`, and how many of it may run at once.

    Raises:
        InvalidField: the limit is no number, or nothing could run.
    """
    numbers, sign, limit = text.partition("%")
    if not sign:
        return text, None
    if not re.fullmatch(r"[1-9]\d{0,5}", limit.strip()):
        raise InvalidField(
            f"{limit.strip()[:40]!r} is no limit: 0-99%10 runs ten at once",
            field="array",
        )
    return numbers, int(limit)


def read_range(text: str) -> list[ArrayRow]:
    """The rows of `0-99`, `0-99:10` or `1,4,7-9`; each has its `index`.

    Raises:
        InvalidField: it is none of these, or too many.
    """
    numbers: list[int] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            raise InvalidField(
                f"{part.strip()[:40]!r} is no range like 0-99, 0-99:10 or 1,4,7-9",
                field="array",
            )
        first, last, step = int(found[1]), int(found[2] or found[1]), found[3]
        chosen = range(first, last + 1, int(step or 1) or 1)
        if not chosen or step == "0":
            raise InvalidField(f"{part.strip()!r} has no numbers", field="array")
        _check_count(len(numbers) + len(chosen))
        numbers += chosen
    if len(set(numbers)) < len(numbers):
        raise InvalidField(f"{text!r} names a number twice", field="array")
    return [ArrayRow(n, {"index": Cell(n, str(n))}) for n in numbers]


def read_sweep(path: Path) -> list[ArrayRow]:
    """The rows of a CSV file, or of a YAML file.

    In YAML a list of maps is one row each; of one map every list makes the grid one
    dimension larger.

    Raises:
        InvalidField: it cannot be read so.
    """
    is_yaml = path.suffix.lower() in (".yaml", ".yml")
    try:
        rows = _read_yaml(path) if is_yaml else _read_csv(path)
    except UnicodeDecodeError as error:
        raise _bad(path, f"it is not UTF-8: {error}") from error
    if not rows:
        raise _bad(path, "it has no rows")
    _check_count(len(rows))
    return [
        ArrayRow(number, {**row, "index": Cell(number, str(number))})
        for number, row in enumerate(rows)
    ]


def _check_count(count: int) -> None:
    if count > MOST:
        raise InvalidField(f"an array has at most {MOST} tasks", field="array")


def _bad(path: Path, why: str) -> InvalidField:
    return InvalidField(f"{path.name}: {why}", field="sweep")


def _check_columns(path: Path, names: Sequence[Any]) -> None:
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name == "index":
            raise _bad(path, f"{name!r} is no name of a column: letters, digits, _.-")
    if len(set(names)) < len(names):
        raise _bad(path, "two columns have the same name")


def _read_csv(path: Path) -> list[dict[str, Cell]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        try:
            lines = [(reader.line_num, line) for line in reader if line]
        except csv.Error as error:
            raise _bad(path, f"line {reader.line_num}: {error}") from error
    names = [name.strip() for name in lines[0][1]] if lines else []
    _check_columns(path, names)
    for number, line in lines[1:]:
        if len(line) != len(names):
            why = f"line {number} has {len(line)} fields, not {len(names)}"
            raise _bad(path, why)
    rows = (zip(names, line, strict=True) for _, line in lines[1:])
    return [{name: Cell(_typed(text), text) for name, text in row} for row in rows]


def _typed(text: str) -> Any:
    """A number where it reads as one; 007 and 1_000 do not."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return text
    number = float(text) if found[2] or found[3] else int(text)
    return number if math.isfinite(number) else text


def _read_yaml(path: Path) -> list[dict[str, Cell]]:
    import yaml

    with path.open(encoding="utf-8") as file:
        try:
            told = yaml.safe_load(file)
        except (yaml.YAMLError, RecursionError) as error:
            raise _bad(path, f"it is no YAML: {error}") from error
    rows = told if isinstance(told, list) else [told]
    if not all(isinstance(row, dict) and row for row in rows):
        raise _bad(path, "it holds neither a map nor a list of maps")
    for row in rows:
        _check_columns(path, list(row))
    if isinstance(told, list):
        return [{name: _cell(path, v) for name, v in row.items()} for row in rows]
    return _grid(path, told)


def _grid(path: Path, told: Mapping[str, Any]) -> list[dict[str, Cell]]:
    sides = [v if isinstance(v, list) else [v] for v in told.values()]
    _check_count(math.prod(len(side) for side in sides))
    return [
        {name: _cell(path, value) for name, value in zip(told, values, strict=True)}
        for values in itertools.product(*sides)
    ]


def _cell(path: Path, value: Any) -> Cell:
    if isinstance(value, bool):
        return Cell(value, str(value).lower())
    if value is None or isinstance(value, str | int | float):
        return Cell(value, "" if value is None else str(value))
    raise _bad(path, f"{value!r:.60} is no text, number, true, false or null")


def fill(value: Any, cells: Mapping[str, Cell], *, is_text: bool = False) -> Any:
    """`value` with `{name}` replaced in every string of it.

    A string that is nothing but one `{name}` becomes the value itself, unless all must
    stay texts. Names that are none of the row's stay as they are.
    """
    if isinstance(value, str):
        whole = _PLACE.fullmatch(value)
        if whole and whole[1] in cells and not is_text:
            return cells[whole[1]].value
        return _PLACE.sub(lambda m: cells[m[1]].text if m[1] in cells else m[0], value)
    if isinstance(value, Mapping):
        return {k: fill(v, cells, is_text=is_text) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [fill(v, cells, is_text=is_text) for v in value]
    return value


def names_in(value: Any) -> set[str]:
    """Every `{name}` in the strings of a value."""
    if isinstance(value, str):
        return set(_PLACE.findall(value))
    inner: Iterable[Any] = ()
    if isinstance(value, Mapping):
        inner = value.values()
    elif isinstance(value, list | tuple):
        inner = value
    return {name for part in inner for name in names_in(part)}


def make_tasks(
    array_id: str,
    task_type: str,
    parameters: Any,
    rows: Sequence[ArrayRow],
    options: Mapping[str, Any],
    *,
    is_sweep: bool = False,
) -> list[dict[str, Any]]:
    """The tasks of an array, as `submit_batch` takes them.

    Scripts learn their place from CORRAL_ARRAY_INDEX, _COUNT and _ID, and have the
    columns of a sweep filled in; others have `{index}` filled in as well. Without
    parameters the row of a sweep is the parameters.
    """
    check_name(array_id, "array")
    labels = {**options.get("labels", {}), LABEL: array_id}
    tasks = []
    for row in rows:
        own = {**labels, INDEX_LABEL: str(row.index)}
        tasks.append(
            {
                **options,
                "task_type": task_type,
                "parameters": _parameters(
                    array_id, task_type, parameters, row, len(rows), is_sweep
                ),
                "labels": own,
                "idempotency_key": f"{array_id}:{row.index}",
            }
        )
    return tasks


def _parameters(
    array_id: str,
    task_type: str,
    parameters: Any,
    row: ArrayRow,
    count: int,
    is_sweep: bool,
) -> Any:
    if task_type == SCRIPT and isinstance(parameters, Mapping):
        # Braces are common in commands: without a file none of them is ours.
        cells = row.cells if is_sweep else {}
        filled = fill(parameters, cells, is_text=True)
        place = {ARRAY_ID: array_id, ARRAY_INDEX: str(row.index)}
        place[ARRAY_COUNT] = str(count)
        return {**filled, "variables": {**filled.get("variables", {}), **place}}
    if parameters is None:
        own = row.cells.items() if is_sweep else ()
        return {name: cell.value for name, cell in own if name != "index"}
    return fill(parameters, row.cells)
