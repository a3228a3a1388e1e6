"""Arrays on the command line: the options that make many tasks of one.

Also what `wait` and `cancel` need to speak of an array as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corral.cli.terminal import errors, output, progress
from corral.cli.words import task as task_words
from corral.errors import InvalidField, Unavailable

if TYPE_CHECKING:
    from corral.client import Client, TaskInfo
    from corral.client.array import ArrayRow
    from corral.wire.tasks import Batch

_SHOWN = 20
Array = Annotated[
    str | None,
    typer.Option(
        metavar="0-99[:STEP][%MOST]",
        help="One task a number; {index} in the JSON is that number.",
    ),
]
Sweep = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="One task a row of a CSV or YAML file; {column} is filled in.",
    ),
]
Nodes = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="A gang: starts on N nodes at once, or not at all."
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show the tasks, submit nothing.")
]
ArrayId = Annotated[
    str | None,
    typer.Option("--array", metavar="ID", help="All tasks of this array."),
]


@dataclass(frozen=True, slots=True)
class ArrayOptions:
    """What was asked for; nothing of it means one task."""

    array: str | None = None
    sweep: Path | None = None
    is_dry: bool = False
    nodes: int | None = None

    @property
    def is_given(self) -> bool:
        return (self.array, self.sweep, self.nodes) != (None, None, None)

    def rows(self) -> list[ArrayRow]:
        from corral.client.array import read_limit, read_range, read_sweep

        if sum(x is not None for x in (self.array, self.sweep, self.nodes)) > 1:
            raise typer.BadParameter("give one of --array, --sweep and --nodes")
        if self.nodes is not None:
            return read_range(f"0-{self.nodes - 1}")
        try:
            if self.sweep is not None:
                return read_sweep(self.sweep)
            return read_range(read_limit(self.array or "")[0])
        except InvalidField as error:
            raise typer.BadParameter(
                error.message, param_hint=f"--{error.field}"
            ) from None

    def limit(self) -> int | None:
        """How many may run at once, where the range says so."""
        from corral.client.array import read_limit

        return read_limit(self.array)[1] if self.array is not None else None


def many(
    array: Array = None,
    sweep: Sweep = None,
    nodes: Nodes = None,
    dry_run: DryRun = False,
) -> ArrayOptions:
    """The options of arrays, for `takes`."""
    asked = ArrayOptions(array, sweep, dry_run, nodes)
    if dry_run and not asked.is_given:
        raise typer.BadParameter(
            "it goes with --array, --sweep or --nodes", param_hint="--dry-run"
        )
    return asked


@dataclass(frozen=True, slots=True)
class TaskArray:
    """An array with its tasks, ready to be sent."""

    id: str
    tasks: list[dict[str, Any]]


def make(
    asked: ArrayOptions, task_type: str, parameters: Any, options: dict[str, Any]
) -> TaskArray:
    """The tasks; an idempotency key that was given is the array's id."""
    from corral.client.array import make_tasks, names_in, new_array_id

    rows = asked.rows()
    own = {k: v for k, v in options.items() if k != "idempotency_key"}
    limit = asked.limit()
    columns = set(rows[0].cells) if asked.sweep else set()
    if columns and parameters is not None and not columns & names_in(parameters):
        names = ", ".join(f"{{{name}}}" for name in sorted(columns - {"index"}))
        raise typer.BadParameter(f"nothing holds any of {names}", param_hint="--sweep")
    array_id = options.get("idempotency_key") or new_array_id()
    if limit is not None:
        own |= {"group": array_id, "group_limit": limit}
    tasks = make_tasks(
        array_id, task_type, parameters, rows, own, is_sweep=asked.sweep is not None
    )
    if asked.nodes is not None:
        for rank, task in enumerate(tasks):
            task |= {"gang": array_id, "gang_rank": rank, "gang_size": asked.nodes}
    return TaskArray(array_id, tasks)


def show_plan(made: TaskArray, as_json: bool) -> None:
    """What would be submitted."""
    if as_json:
        output.echo_json({"array": made.id, "tasks": made.tasks})
        return
    for task in made.tasks[:_SHOWN]:
        output.echo_json({task["task_type"]: task["parameters"]}, indent=None)
    if (more := len(made.tasks) - _SHOWN) > 0:
        output.hint(f"... and {more} more")
    output.hint(f"{len(made.tasks)} tasks; nothing was submitted")


def send(client: Client, made: TaskArray) -> Batch:
    """Submit an array; says how to go on when the cluster went away meanwhile."""
    with progress.bar("submitting") as advance:
        try:
            return client.submit_batch(made.tasks, on_progress=advance)
        except Unavailable:
            output.hint(
                "Some tasks may be there already: the same command with "
                f"--idempotency-key {made.id} goes on, and makes none twice."
            )
            raise


def show_sent(made: TaskArray, batch: Batch, as_json: bool) -> None:
    """Print the array's id; exits 1 when a task was refused."""
    if as_json:
        output.echo_json({"array": made.id, **batch.to_dict()})
    else:
        typer.echo(made.id)
    accepted = len(batch.task_ids) - len(batch.errors)
    output.hint(
        f"{accepted} of {len(batch.task_ids)} tasks submitted: "
        f"'corral wait --array {made.id}' waits for them, "
        f"'corral tasks --label array={made.id}' lists them."
    )
    for refusal in batch.errors[:_SHOWN]:
        label = made.tasks[refusal.index]["labels"]["array.index"]
        output.hint(f"Error: index {label}: {errors.one_line(refusal.message)}")
    if batch.errors:
        raise typer.Exit(errors.FAILED)


def submit(
    client: Client,
    asked: ArrayOptions,
    task_type: str,
    parameters: Any,
    options: dict[str, Any],
    as_json: bool,
) -> None:
    """Make an array and send it, or show it only."""
    made = make(asked, task_type, parameters, options)
    if asked.is_dry:
        show_plan(made, as_json)
    else:
        show_sent(made, send(client, made), as_json)


def tasks_of(
    client: Client, array_id: str, status: str | None = None
) -> list[TaskInfo]:
    """The tasks of an array in the order of their numbers."""
    found = list(client.list_tasks(label=f"array:{array_id}", status=status))
    return sorted(found, key=_place)


def _place(task: TaskInfo) -> tuple[int, str]:
    text = task.labels.get("array.index", "")
    return (int(text) if text.isdecimal() else 0, task.task_id)


def known_tasks_of(client: Client, array_id: str) -> list[TaskInfo]:
    """Exits 1 when there is no such array."""
    found = tasks_of(client, array_id)
    if not found:
        output.hint(
            f"Error: there is no task of an array {errors.one_line(array_id)!r}"
        )
        raise typer.Exit(errors.FAILED)
    return found


def leave(array_id: str, ended: Sequence[TaskInfo], as_json: bool) -> None:
    """Say how an array ended; exits 1 unless all of it completed."""
    if as_json:
        output.echo_values(ended)
    else:
        typer.echo(summary(array_id, ended))
    failed = [task for task in ended if not task.is_completed]
    for task in failed[:_SHOWN]:
        place = task.labels.get("array.index", "?")
        text = f"index {place} ({task.task_id}) {task_words.outcome(task)}"
        output.hint(f"Error: {errors.one_line(text)}")
    if failed:
        raise typer.Exit(errors.FAILED)


def summary(array_id: str, tasks: Iterable[TaskInfo]) -> str:
    """`array a-1: 98 completed, 2 failed`."""
    counts = Counter(task.status for task in tasks)
    words = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    return f"array {array_id}: {words}"
