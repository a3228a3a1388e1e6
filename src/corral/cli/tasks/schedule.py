"""`corral schedule`: tasks that are submitted again and again, by the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from corral.cli.options import arguments, script
from corral.cli.options.arguments import takes
from corral.cli.options.connect import connect
from corral.cli.tasks.run import is_command, read_task
from corral.cli.terminal import output
from corral.cli.words import task as task_words
from corral.core.tasks.script import JOB_TYPE

if TYPE_CHECKING:
    from corral.client import TaskOptions
    from corral.wire.queues import ScheduleInfo
    from corral.wire.tasks import TaskInfo

app = typer.Typer(no_args_is_help=True, help="Submit tasks by the clock.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.")]
_COLUMNS: output.Columns[ScheduleInfo] = {
    "NAME": lambda row: row.name,
    "CRON": lambda row: row.cron,
    "ZONE": lambda row: row.timezone,
    "TYPE": lambda row: row.task.get("task_type"),
    "STATUS": lambda row: row.status,
    "NEXT": lambda row: row.next_at,
    "LAST": lambda row: row.last_at,
    "NOTE": lambda row: row.note,
}
_RUNS: output.Columns[TaskInfo] = {
    "TASK": task_words.COLUMNS["TASK"],
    "PLANNED": lambda task: task.scheduled_at,
    "STATUS": task_words.COLUMNS["STATUS"],
    "AGE": task_words.COLUMNS["AGE"],
    "RAN": task_words.COLUMNS["RAN"],
}


@app.command()
@takes(options=arguments.task_group, code=script.source, given=script.rules)
def add(
    ctx: typer.Context,
    cron: Annotated[
        str,
        typer.Argument(
            metavar="CRON", help='"minute hour day month weekday", or @daily.'
        ),
    ],
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="TYPE [JSON|@FILE|-] | -- COMMAND...",
            help="A job type and its input; or, after --, a command to run.",
        ),
    ],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What it is called.")
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option("--tz", metavar="ZONE", help="Like Europe/Berlin; else UTC."),
    ] = None,
    missed: Annotated[
        str | None,
        typer.Option(
            metavar="skip|once|all",
            help="What becomes of runs missed while the cluster was down; else once.",
        ),
    ] = None,
    overlap: Annotated[
        str | None,
        typer.Option(
            metavar="allow|skip",
            help="May a run begin while the one before lives? Else allow.",
        ),
    ] = None,
    as_json: output.JsonFlag = False,
    *,
    options: TaskOptions,
    code: script.ScriptSource,
    given: script.Rules,
) -> None:
    """Submit a task at the times of a cron line.

    `corral schedule add "0 3 * * *" echo '{"message": "good morning"}'`, or a command:
    `corral schedule add "*/5 * * * *" --git URL -- python x.py`.
    """
    with connect(ctx) as client:
        if code.is_given or given.told or is_command():
            task_type = JOB_TYPE
            value = script.payload(client, words, code, given, options)
        else:
            task_type, value = read_task(words)
        task: dict[str, Any] = {"task_type": task_type, **options}
        if value is not None:
            task["parameters"] = value
        made = client.add_schedule(
            cron, task, name=name, timezone=timezone, missed=missed, overlap=overlap
        )
    if as_json:
        output.echo_json(made.to_dict())
        return
    typer.echo(made.name)
    output.hint(f"{made.explained}; next at {output.cell(made.next_at)}")


@app.command("list")
def list_(ctx: typer.Context, as_json: output.JsonFlag = False) -> None:
    """List schedules."""
    with connect(ctx) as client:
        found = client.schedules()
    none = 'No schedules yet. Try: corral schedule add "@hourly" echo'
    output.show_list(found, _COLUMNS, as_json=as_json, none=none)


@app.command("show")
def show_(ctx: typer.Context, name: Name, as_json: output.JsonFlag = False) -> None:
    """Show one schedule and its latest tasks."""
    with connect(ctx) as client:
        found = client.schedule(name)
        runs = [] if as_json else list(client.list_tasks(schedule=name, limit=5))
    if as_json:
        output.echo_json(found.to_dict())
        return
    output.facts(_facts(found))
    if runs:
        typer.echo("")
        output.print_grid(output.list_grid(runs, _RUNS))
        output.hint(f"'corral tasks --schedule {name}' lists all of them.")


def _facts(row: ScheduleInfo) -> list[tuple[str, Any]]:
    return [
        ("schedule", row.name),
        ("cron", f"{row.cron} ({row.explained})"),
        ("time zone", row.timezone),
        ("status", row.status),
        ("next", row.next_at),
        ("then", ", ".join(output.cell(at) for at in row.upcoming[1:])),
        ("last", row.last_at),
        ("last task", row.last_task_id),
        ("note", row.note),
        ("missed runs", row.missed),
        ("overlap", row.overlap),
        ("type", row.task.get("task_type")),
        ("parameters", task_words.as_json(row.task.get("parameters"))),
        ("notifies", ", ".join(row.task.get("notify") or ())),
        ("created", row.created_at),
    ]


@app.command()
def pause(ctx: typer.Context, name: Name) -> None:
    """Submit nothing until it is resumed."""
    with connect(ctx) as client:
        client.pause_schedule(name)
    typer.echo(f"paused {name}")


@app.command()
def resume(ctx: typer.Context, name: Name) -> None:
    """Go on from now."""
    with connect(ctx) as client:
        found = client.resume_schedule(name)
    typer.echo(f"resumed {name}")
    output.hint(f"next at {output.cell(found.next_at)}")


@app.command()
def remove(ctx: typer.Context, name: Name) -> None:
    """Forget a schedule; tasks it has submitted stay."""
    with connect(ctx) as client:
        client.remove_schedule(name)
    typer.echo(f"removed {name}")


@app.command("run-now")
def run_now(ctx: typer.Context, name: Name, as_json: output.JsonFlag = False) -> None:
    """Submit its task now, beside the plan, and print the id."""
    with connect(ctx) as client:
        submitted = client.run_schedule(name)
    if as_json:
        output.echo_json(submitted.to_dict())
    else:
        typer.echo(submitted.task_id)
