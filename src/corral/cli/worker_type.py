"""`corral worker-type add | list | remove`: named recipes for workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from corral.cli import script, show
from corral.cli.argument import read_json
from corral.cli.connect import connect
from corral.cli.group import takes

app = typer.Typer(no_args_is_help=True, help="Name classes to launch workers of.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="The type's name.")]


@app.command("list")
def list_(ctx: typer.Context, as_json: show.JsonFlag = False) -> None:
    """List worker types."""
    with connect(ctx) as client:
        found = client.worker_types()
    if as_json:
        show.echo_values(found)
        return
    if not found:
        show.hint("No worker types. Add one: corral worker-type add NAME CLASS")
        return
    show.table(
        ("WORKER TYPE", "VERSION", "CLASS", "SERVES", "CODE"),
        [
            (
                kind.name,
                kind.version,
                kind.worker_class,
                kind.job_type,
                _source(kind.environment),
            )
            for kind in found
        ],
    )


def _source(environment: Mapping[str, Any] | None) -> str:
    """Where code comes from, in a word or two."""
    for kind, told in (environment or {}).items():
        where = told.get("repo_url") or told.get("image") or told.get("digest", "")[:12]
        at = told.get("commit") or told.get("branch")
        return f"{kind} {where}" + (f" at {at[:12]}" if at else "")
    return "installed"


@app.command()
@takes(code=script.source)
def add(
    ctx: typer.Context,
    name: Name,
    worker_class: Annotated[
        str, typer.Argument(metavar="CLASS", help="module:Class or a dotted path.")
    ],
    job_type: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="The job type its workers serve."),
    ] = None,
    params: Annotated[
        str | None,
        typer.Option(metavar="JSON|@FILE", help="Arguments of the class, an object."),
    ] = None,
    *,
    code: script.Source,
) -> None:
    """Add a worker type, or replace it.

    Without --git, --dir or --image the class is one that nodes have installed.
    """
    arguments = read_json(params, "--params")
    if arguments is not None and not isinstance(arguments, dict):
        raise typer.BadParameter("it must be a JSON object", param_hint="--params")
    with connect(ctx) as client:
        client.register_worker_type(
            name,
            worker_class,
            job_type=job_type,
            params=arguments,
            environment=code.environment(client),
        )
    typer.echo(f"added {name}")


@app.command()
def remove(ctx: typer.Context, name: Name) -> None:
    """Forget a worker type; workers launched from it go on."""
    with connect(ctx) as client:
        client.remove_worker_type(name)
    typer.echo(f"removed {name}")
