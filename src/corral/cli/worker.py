"""`corral worker launch | stop`: change which workers run."""

from __future__ import annotations

from typing import Annotated

import typer

from corral.cli import show
from corral.cli.argument import read_json
from corral.cli.connect import connect

app = typer.Typer(no_args_is_help=True, help="Launch or stop workers.")


@app.command()
def launch(
    ctx: typer.Context,
    worker_class: Annotated[
        str, typer.Argument(metavar="CLASS", help="module:Class or a dotted path.")
    ],
    name: Annotated[str | None, typer.Option(help="A name for it.")] = None,
    job_type: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE", help="What it serves; may be repeated."),
    ] = None,
    params: Annotated[
        str | None,
        typer.Option(metavar="JSON|@FILE", help="Arguments of the class, an object."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Runners of each worker.", min=1)
    ] = None,
    node: Annotated[
        str | None, typer.Option(metavar="NODE", help="Where; else Corral chooses.")
    ] = None,
    count: Annotated[
        int | None, typer.Option(help="How many such workers.", min=1)
    ] = None,
    as_json: show.JsonFlag = False,
) -> None:
    """Launch workers of a class, and print their ids."""
    arguments = read_json(params, "--params")
    if arguments is not None and not isinstance(arguments, dict):
        raise typer.BadParameter("it must be a JSON object", param_hint="--params")
    with connect(ctx) as client:
        launched = client.launch_worker(
            worker_class,
            name=name,
            job_types=job_type,
            params=arguments,
            concurrency=concurrency,
            node_id=node,
            count=count,
        )
    if as_json:
        show.echo_values(launched)
        return
    for worker in launched:
        typer.echo(worker.worker_id)


@app.command()
def stop(
    ctx: typer.Context,
    worker_ids: Annotated[
        list[str], typer.Argument(metavar="WORKER...", help="Their ids.")
    ],
) -> None:
    """Stop workers; their unfinished tasks go back to the queue."""
    with connect(ctx) as client:
        for worker_id in worker_ids:
            client.stop_worker(worker_id)
            typer.echo(f"stopped {worker_id}")
