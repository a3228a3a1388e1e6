"""How a task is written to its row and read from it.

Nothing is declared here that is declared already: columns and their types are those of
the tables, where their values are and what they usually are say the fields of the
values that are written. A new column of tasks is a field, a line of the table and a
migration; it needs a line in `_WRITE` and `_READ` only when it is not kept as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from sqlalchemy.dialects import postgresql

from corral.core.tasks.options import NO_OPTIONS
from corral.core.tasks.outcome import Settlement
from corral.core.tasks.task import Attempt, Overlap, State, Task, TaskError, TaskSpec
from corral.store.base import Placement
from corral.store.postgres.rows import options_text, read_options
from corral.store.tables.tasks import attempts, tasks
from corral.store.text import clean, clean_or_none

Array = list[Any] | None


def thin(column: list[Any], usual: Any) -> Array:
    """None for a column in which every row has its usual value.

    unnest pads it with nulls: neither side spends anything on the column then.
    """
    return None if column.count(usual) == len(column) else column


def array_literal(values: Sequence[str]) -> str | None:
    """PostgreSQL's own spelling of a text array; None when there is nothing in it."""
    if not values:
        return None
    quoted = [value.replace("\\", "\\\\").replace('"', '\\"') for value in values]
    return '{"' + '","'.join(quoted) + '"}'


def label_texts(labels: Mapping[str, str]) -> list[str]:
    """One JSON text a pair: containment of arrays then answers a label filter."""
    return [json.dumps(pair) for pair in sorted(labels.items())]


def _option_texts(specs: Sequence[TaskSpec]) -> list[str | None]:
    """Tasks of one request mostly share their options: those are written once."""
    known: dict[int, str | None] = {id(NO_OPTIONS): None}
    return [
        known[key]
        if (key := id(spec.options)) in known
        else known.setdefault(key, options_text(spec.options))
        for spec in specs
    ]


# unnest flattens arrays of arrays, so those travel as array literals.
_WRITE: Mapping[str, Callable[[Sequence[TaskSpec]], list[str | None]]] = {
    "labels": lambda specs: [
        array_literal(label_texts(spec.labels)) if spec.labels else None
        for spec in specs
    ],
    "depends_on": lambda specs: [array_literal(spec.depends_on) for spec in specs],
    "options": _option_texts,
}
_READ: Mapping[str, Callable[[Any], Any]] = {
    "labels": lambda pairs: dict(map(json.loads, pairs)) if pairs else {},
    "depends_on": lambda ids: tuple(ids) if ids else (),
    "options": read_options,
    "overlap": {str(overlap): overlap for overlap in Overlap}.__getitem__,
    "state": {str(state): state for state in State}.__getitem__,
}
_TYPES = {
    column.name: column.type.compile(postgresql.dialect())  # type: ignore[no-untyped-call]
    for table in (attempts, tasks)
    for column in table.columns
}


def array_type(name: str) -> str:
    """Of the array that brings a column's values."""
    return _TYPES[name].removesuffix("[]") + "[]"


@dataclass(frozen=True, slots=True)
class ArrayColumn:
    """A column of a batch: what a row, its spec or its error has there, as source,
    and what most have.
    """

    name: str
    source: str
    usual: Any

    @property
    def pick(self) -> str:
        """The value of a row, from the arrays: where all were usual there is none."""
        if self.name in _WRITE:
            return f"{self.name}::{_TYPES[self.name]}"
        if self.usual in (None, MISSING):
            return self.name
        usual = f"'{self.usual}'" if isinstance(self.usual, str) else self.usual
        return f"coalesce({self.name}, {usual})"

    def array(self) -> str:
        """Its array, as source."""
        of = re.split(r"\W", self.source)[0]
        made = f"[{self.source} for {of} in {of}s]"
        if self.name in _WRITE:
            made = f"write[{self.name!r}](specs)"
        is_thin = self.usual is not MISSING
        return f"thin({made}, usual[{self.name!r}])" if is_thin else made


def _columns(kind: type, of: str = "row") -> Iterator[ArrayColumn]:
    """Of the fields in their order, those of a spec and an error in their places."""
    for field in fields(kind):
        name = "id" if field.name == "task_id" else field.name
        if name == "spec":
            yield from _columns(TaskSpec, "spec")
        elif name == "error":
            for part in fields(TaskError):
                given = f"error and error.{part.name}"
                yield ArrayColumn(f"error_{part.name}", given, None)
        elif name in _TYPES:
            usual = None if name in _WRITE else field.default
            yield ArrayColumn(name, f"{of}.{field.name}", usual)


TASK_COLUMNS = tuple(column.name for column in _columns(Task))
"""Every statement returns tasks so, and `task_of` relies on it."""
_MADE_LATER = frozenset({"seq", "started_at", "finished_at", "result", "dead_letter"})
INSERTED = tuple(
    column
    for column in _columns(Task)
    if column.name not in _MADE_LATER and not column.name.startswith("error_")
)
ANSWERED = (
    *INSERTED,
    ArrayColumn("finished_at", "row.finished_at", None),
    ArrayColumn("result", "row.result", None),
)
"""For a batch in which some tasks come with their result."""
PLACED = tuple(_columns(Placement))
SETTLED = tuple(
    replace(column, usual=0) if column.name in ("tries", "losses") else column
    for column in _columns(Settlement)
)


def _made(source: str, **names: Any) -> Any:
    """The function `source` defines: every task passes through these, and attributes
    that are written out take a third less time than any lookup by name.
    """
    exec(source, names)
    return names["made"]


def _arrays(columns: Sequence[ArrayColumn]) -> Callable[..., list[Array]]:
    lists = ", ".join(column.array() for column in columns)
    usual = {column.name: column.usual for column in columns}
    source = f"def made(rows, specs=(), errors=()):\n    return [{lists}]"
    return _made(source, thin=thin, write=_WRITE, usual=usual)  # type: ignore[no-any-return]


_insert_arrays = _arrays(INSERTED)
_answered_arrays = _arrays(ANSWERED)
_settle_arrays = _arrays(SETTLED)
place_arrays = _arrays(PLACED)


def insert_arrays(rows: Sequence[Task]) -> list[Array]:
    return _insert_arrays(rows, [task.spec for task in rows])


def answered_arrays(rows: Sequence[Task]) -> list[Array]:
    return _answered_arrays(rows, [task.spec for task in rows])


def settle_arrays(rows: Sequence[Settlement]) -> list[Array]:
    return _settle_arrays(rows, errors=[clean_error(row.error) for row in rows])


def clean_error(error: TaskError | None) -> TaskError | None:
    if error is None:
        return None
    return TaskError(
        clean(error.kind), clean(error.message), clean_or_none(error.traceback)
    )


def _error(
    kind: str | None, message: str | None, trace: str | None
) -> TaskError | None:
    return None if kind is None else TaskError(kind, message or "", trace)


def _reader() -> Callable[[Sequence[Any]], Task]:
    def given(kind: type) -> str:
        nested = {
            "spec": f"TaskSpec({given(TaskSpec)})" if kind is Task else "",
            "error": "error(error_kind, error_message, error_traceback)",
            **{name: f"{name}_of({name})" for name in _READ},
        }
        return ", ".join(nested.get(field.name, field.name) for field in fields(kind))

    columns = ", ".join(TASK_COLUMNS)
    source = f"def made(row):\n    {columns} = row\n    return Task({given(Task)})"
    reads = {f"{name}_of": read for name, read in _READ.items()}
    return _made(source, Task=Task, TaskSpec=TaskSpec, error=_error, **reads)  # type: ignore[no-any-return]


task_of = _reader()
"""A task from a row of TASK_COLUMNS."""


def attempt_of(row: Mapping[str, Any]) -> Attempt:
    return Attempt(
        task_id=row["task_id"],
        run=row["run"],
        attempt=row["attempt"],
        outcome=row["outcome"],
        worker_id=row["worker_id"],
        node_id=row["node_id"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        error=_error(row["error_kind"], row["error_message"], row["error_traceback"]),
    )
