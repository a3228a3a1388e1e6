"""`corral workers`, and `corral worker launch | restart | stop`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options.arguments import read_json
from corral.cli.options.connect import connect
from corral.cli.terminal import output
from corral.cli.words import worker as worker_words
from corral.errors import Conflict

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire.workers import WorkerInfo

app = typer.Typer(no_args_is_help=True, help="Launch, list, restart or stop workers.")
WorkersArgument = Annotated[
    list[str], typer.Argument(metavar="WORKER...", help="Their ids.")
]
GpusOption = Annotated[
    str | None,
    typer.Option(
        metavar="N|CARDS",
        help="Cards each has for itself: how many, or gpu:0,gpu:1 or ids.",
    ),
]


def workers(
    ctx: typer.Context,
    status: Annotated[
        str | None, typer.Option(help="Only online, busy, error or offline ones.")
    ] = None,
    as_json: output.JsonFlag = False,
) -> None:
    """List workers."""
    with connect(ctx) as client:
        found = client.workers(status=status)
    none = (
        f"No worker is {status}."
        if status
        else "No workers. Start one with 'corral worker launch CLASS', "
        "like 'corral worker launch corral.EchoWorker'."
    )
    output.show_list(found, worker_words.COLUMNS, as_json=as_json, none=none)


# `corral worker launch | list | restart | stop`: change which workers run.

app.command("list")(workers)


@app.command()
def launch(
    ctx: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            metavar="CLASS|TYPE",
            help="module:Class, a dotted path, or the name of a worker type.",
        ),
    ],
    name: Annotated[str | None, typer.Option(help="A name for it.")] = None,
    job_type: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE", help="What a class serves; may be repeated."),
    ] = None,
    params: Annotated[
        str | None,
        typer.Option(metavar="JSON|@FILE", help="Arguments of a class, an object."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Runners of each worker of a class.", min=1)
    ] = None,
    node: Annotated[
        str | None, typer.Option(metavar="NODE", help="Where; else Corral chooses.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="What a worker of a type is known by."),
    ] = None,
    count: Annotated[
        int | None, typer.Option(help="How many such workers.", min=1)
    ] = None,
    gpus: GpusOption = None,
    as_json: output.JsonFlag = False,
) -> None:
    """Launch workers of a class or of a worker type, and print their ids."""
    arguments = read_json(params, "--params")
    if arguments is not None and not isinstance(arguments, dict):
        raise typer.BadParameter("it must be a JSON object", param_hint="--params")
    if not _is_class(what):
        _refuse(
            "it does not go with a worker type, which has its own",
            {"--job-type": job_type, "--params": params, "--concurrency": concurrency},
        )
        if count is not None:
            _refuse("it goes with one worker only", {"--name": name, "--url": url})
    elif url is not None:
        _refuse("only workers of a worker type have one", {"--url": url})
    with connect(ctx) as client:
        if _is_class(what):
            launched = client.launch_worker(
                what,
                name=name,
                job_types=job_type,
                params=arguments,
                concurrency=concurrency,
                node_id=node,
                count=count,
                gpus=gpus,
            )
        else:
            launched = _launch_type(client, what, name, node, url, gpus, count or 1)
    if as_json:
        output.echo_values(launched)
        return
    for worker in launched:
        typer.echo(worker.worker_id)


def _is_class(what: str) -> bool:
    return ":" in what or "." in what


def _refuse(why: str, options: Mapping[str, object]) -> None:
    """An option that would be ignored is a mistake."""
    for option, value in options.items():
        if value is not None:
            raise typer.BadParameter(why, param_hint=option)


def _launch_type(
    client: Client,
    worker_type: str,
    name: str | None,
    node: str | None,
    url: str | None,
    gpus: str | None,
    count: int,
) -> list[WorkerInfo]:
    launched = []
    for _ in range(count):
        place = node or _emptiest_node(client)
        worker_id = client.launch_worker_of_type(
            worker_type, node=place, name=name, url=url, gpus=gpus
        )
        launched.append(client.worker(worker_id))
    return launched


def _emptiest_node(client: Client) -> str:
    online = [node for node in client.nodes() if node.status == "online"]
    if not online:
        raise Conflict("no node is online; join one with 'corral join'")
    best = min(online, key=lambda n: (n.workers, n.node_id))
    return best.node_id


@app.command()
def restart(
    ctx: typer.Context, worker_ids: WorkersArgument, as_json: output.JsonFlag = False
) -> None:
    """Start workers anew under the same ids, once they have finished what they run."""
    with connect(ctx) as client:
        told = [client.restart_worker(worker_id) for worker_id in worker_ids]
    if as_json:
        output.echo_values(told)
        return
    for worker in told:
        away = output.took(worker.estimated_downtime)
        typer.echo(f"restarting {worker.worker_id}, away for about {away}")


@app.command()
def stop(ctx: typer.Context, worker_ids: WorkersArgument) -> None:
    """Stop workers; their unfinished tasks go back to the queue."""
    with connect(ctx) as client:
        for worker_id in worker_ids:
            client.stop_worker(worker_id)
            typer.echo(f"stopped {worker_id}")
