"""`corral job-type list | add | set | pause | resume`: the kinds of work there are."""

from __future__ import annotations

from typing import Annotated

import typer

from corral.cli import show
from corral.cli.argument import read_json
from corral.cli.connect import connect
from corral.core.job_type import MOST_BATCHED

app = typer.Typer(no_args_is_help=True, help="The kinds of work the cluster knows.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name.")]

Schema = Annotated[
    str | None, typer.Option(metavar="JSON|@FILE", help="A JSON schema to check it by.")
]


@app.command("list")
def list_(ctx: typer.Context, as_json: show.JsonFlag = False) -> None:
    """List job types."""
    with connect(ctx) as client:
        found = client.job_types()
    if as_json:
        show.echo_values(found)
        return
    if not found:
        show.hint(
            "No job types. A worker brings its own when it starts "
            "('corral worker launch CLASS'); 'corral job-type add NAME' adds one."
        )
        return
    show.table(
        ("JOB TYPE", "INPUT SCHEMA", "OUTPUT SCHEMA", "BATCH", "WAITING", "STATE"),
        [
            (
                kind.name,
                "yes" if kind.input_schema else "no",
                "yes" if kind.output_schema else "no",
                kind.batch_limit or "-",
                kind.waiting,
                "paused" if kind.paused else "open",
            )
            for kind in found
        ],
    )


@app.command()
def add(
    ctx: typer.Context,
    name: Name,
    input_schema: Schema = None,
    output_schema: Schema = None,
    batch_limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Hand a worker with run_batch up to N tasks at once.",
            min=1,
            max=MOST_BATCHED,
        ),
    ] = None,
) -> None:
    """Make a job type known, so that tasks of it are accepted."""
    with connect(ctx) as client:
        client.register_job_type(
            name,
            input_schema=read_json(input_schema, "--input-schema"),
            output_schema=read_json(output_schema, "--output-schema"),
            batch_limit=batch_limit,
        )
    typer.echo(f"added {name}")


@app.command("set")
def set_(
    ctx: typer.Context,
    name: Name,
    batch_limit: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Hand a worker with run_batch up to N tasks at once; 0: no limit set.",
            min=0,
            max=MOST_BATCHED,
        ),
    ],
) -> None:
    """Change how many of its tasks go to one worker at once."""
    with connect(ctx) as client:
        client.set_batch_limit(name, batch_limit or None)
    typer.echo(f"set {name}")


@app.command()
def pause(ctx: typer.Context, name: Name) -> None:
    """Let its tasks wait; what runs goes on."""
    with connect(ctx) as client:
        client.pause_job_type(name)
    typer.echo(f"paused {name}")


@app.command()
def resume(ctx: typer.Context, name: Name) -> None:
    """Let its tasks start again."""
    with connect(ctx) as client:
        client.resume_job_type(name)
    typer.echo(f"resumed {name}")
