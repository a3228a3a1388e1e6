"""`corral job-type list | add | set | pause | resume | clear-cache`: kinds of work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options.arguments import read_json
from corral.cli.options.connect import connect
from corral.cli.terminal import output
from corral.core.tasks.job_type import CACHE_S, MOST_BATCHED

if TYPE_CHECKING:
    from corral.wire.queues import JobTypeInfo

app = typer.Typer(no_args_is_help=True, help="The kinds of work the cluster knows.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name.")]

Schema = Annotated[
    str | None, typer.Option(metavar="JSON|@FILE", help="A JSON schema to check it by.")
]
_CACHE = "Answer the same input with a result kept for so long"
_COLUMNS: output.Columns[JobTypeInfo] = {
    "JOB TYPE": lambda kind: kind.name,
    "INPUT SCHEMA": lambda kind: "yes" if kind.input_schema else "no",
    "OUTPUT SCHEMA": lambda kind: "yes" if kind.output_schema else "no",
    "BATCH": lambda kind: kind.batch_limit or "-",
    "WAITING": lambda kind: kind.waiting,
    "STATE": lambda kind: "paused" if kind.paused else "open",
    "CACHE": lambda kind: _cache(kind),
}


@app.command("list")
def list_(ctx: typer.Context, as_json: output.JsonFlag = False) -> None:
    """List job types."""
    with connect(ctx) as client:
        found = client.job_types()
    none = (
        "No job types. A worker brings its own when it starts "
        "('corral worker launch CLASS'); 'corral job-type add NAME' adds one."
    )
    output.show_list(found, _COLUMNS, as_json=as_json, none=none)


def _cache(kind: JobTypeInfo) -> str:
    """For how long results are kept, and how often one was found."""
    if kind.cache_ttl_s is None:
        return "-"
    kept_s = output.took(kind.cache_ttl_s)
    rate = kind.cache.hit_rate if kind.cache else None
    return kept_s if rate is None else f"{kept_s}, {rate:.0%} hits"


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
    cache_ttl: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help=f"{_CACHE}.", min=CACHE_S[0], max=CACHE_S[1]
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
            cache_ttl_s=cache_ttl,
        )
    typer.echo(f"added {name}")


@app.command("set")
def set_(
    ctx: typer.Context,
    name: Name,
    batch_limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Hand a worker with run_batch up to N tasks at once; 0: no limit set.",
            min=0,
            max=MOST_BATCHED,
        ),
    ] = None,
    cache_ttl: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help=f"{_CACHE}; 0: never.", min=0, max=CACHE_S[1]
        ),
    ] = None,
) -> None:
    """Change how its tasks are batched, or for how long its results are kept."""
    if batch_limit is None and cache_ttl is None:
        raise typer.BadParameter("give --batch-limit or --cache-ttl")
    with connect(ctx) as client:
        if batch_limit is not None:
            client.set_batch_limit(name, batch_limit or None)
        if cache_ttl is not None:
            client.set_cache_ttl(name, cache_ttl or None)
    typer.echo(f"set {name}")


@app.command()
def clear_cache(ctx: typer.Context, name: Name) -> None:
    """Forget the results that are kept of it."""
    with connect(ctx) as client:
        count = client.clear_cache(name)
    typer.echo(f"forgot {count} result{'' if count == 1 else 's'} of {name}")


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
