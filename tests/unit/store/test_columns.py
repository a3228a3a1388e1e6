"""What is made of the fields of a task and of its table, before a database sees it."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime

from corral.core.tasks.needs import Need
from corral.core.tasks.options import SpecOptions
from corral.core.tasks.task import Overlap, State, Task, TaskError, TaskSpec
from corral.store.postgres.rows import options_text
from corral.store.postgres.tasks.columns import (
    ANSWERED,
    INSERTED,
    TASK_COLUMNS,
    array_type,
    insert_arrays,
    task_of,
)
from corral.store.tables.tasks import tasks

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def test_every_column_of_the_table_is_a_field_and_every_field_a_column() -> None:
    nested = len(fields(TaskSpec)) - 1 + len(fields(TaskError)) - 1
    assert set(TASK_COLUMNS) == {column.name for column in tasks.columns}
    assert len(TASK_COLUMNS) == len(fields(Task)) + nested


def test_whatever_is_asked_for_is_inserted() -> None:
    assert {field.name for field in fields(TaskSpec)} <= {c.name for c in INSERTED}


def test_types_of_arrays_are_those_of_the_table() -> None:
    names = ("priority", "timeout_s", "run_after", "labels", "seq")
    assert [array_type(name) for name in names] == [
        "INTEGER[]",
        "DOUBLE PRECISION[]",
        "TIMESTAMP WITH TIME ZONE[]",
        "TEXT[]",
        "BIGINT[]",
    ]


def test_a_column_of_usual_values_is_no_array_and_comes_back_by_its_pick() -> None:
    plain = Task(TaskSpec("a", "echo", "1"), State.QUEUED, NOW)
    urgent = Task(TaskSpec("b", "echo", "1", priority=3), State.QUEUED, NOW)
    names = [column.name for column in INSERTED]
    picks = {column.name: column.pick for column in ANSWERED}
    arrays = dict(zip(names, insert_arrays([plain, urgent]), strict=True))
    sent = {name: array for name, array in arrays.items() if array is not None}
    assert sent == {
        "id": ["a", "b"],
        "job_type": ["echo", "echo"],
        "payload": ["1", "1"],
        "priority": [0, 3],
        "state": [State.QUEUED, State.QUEUED],
        "created_at": [NOW, NOW],
    }
    assert picks["priority"] == "coalesce(priority, 0)"
    assert picks["overlap"] == "coalesce(overlap, 'allowed')"
    assert picks["labels"] == "labels::TEXT[]"
    assert picks["model"] == "model"


def test_a_row_is_read_as_the_task_it_was() -> None:
    spec = TaskSpec(
        *("t", "echo", "1", 2, "m", 3.0, 4, NOW, NOW, "k"),
        labels={"a": "b"},
        depends_on=("s",),
        overlap=Overlap.NEVER,
        owner="me",
        options=SpecOptions(gang="g", resources=Need(gpus=1, share=500)),
    )
    error = TaskError("kind", "why", "trace")
    placed = ("w", "i", "n", NOW, NOW, NOW)
    task = Task(spec, State.FAILED, NOW, 5, 6, 7, 8, 9, *placed, "r", error, "failed")
    special = {
        "labels": ['["a", "b"]'],
        "depends_on": ["s"],
        "overlap": "never",
        "options": options_text(spec.options),
        "state": "failed",
        "error_kind": "kind",
        "error_message": "why",
        "error_traceback": "trace",
    }
    row = [
        special.get(name, getattr(task, name, getattr(spec, name, None)))
        for name in TASK_COLUMNS
    ]
    assert task_of(row) == task
