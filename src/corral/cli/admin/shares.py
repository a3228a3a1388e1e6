"""`corral share list | set | remove`: who may have how much of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options.connect import connect
from corral.cli.terminal import output

if TYPE_CHECKING:
    from corral.wire.queues import ShareInfo

app = typer.Typer(no_args_is_help=True, help="Who may have how much of the cluster.")
Name = Annotated[
    str,
    typer.Argument(
        metavar="KEY=VALUE",
        help="owner=NAME of a key, or a label of tasks like team=vision.",
    ),
]
_COLUMNS: output.Columns[ShareInfo] = {
    "SHARE": lambda share: share.name,
    "WEIGHT": lambda share: "-" if share.weight is None else f"{share.weight:g}",
    "RUNNING": lambda share: _of(share.running, share.max_running),
    "WAITING": lambda share: share.waiting,
    "GPU-SECONDS TODAY": lambda share: _of(
        round(share.gpu_seconds_today), share.gpu_seconds_per_day
    ),
}


@app.command("list")
def list_(ctx: typer.Context, as_json: output.JsonFlag = False) -> None:
    """List shares, and how each stands."""
    with connect(ctx) as client:
        found = client.shares()
    none = "No shares. Set one: corral share set team=vision --weight 2"
    output.show_list(found, _COLUMNS, as_json=as_json, none=none)


def _of(used: int, most: float | None) -> str:
    return str(used) if most is None else f"{used} of {most:g}"


@app.command("set")
def set_(
    ctx: typer.Context,
    name: Name,
    weight: Annotated[
        float | None, typer.Option(metavar="W", help="Its part beside the others.")
    ] = None,
    max_running: Annotated[
        int | None, typer.Option(metavar="N", help="At most N tasks at once.")
    ] = None,
    gpu_seconds_per_day: Annotated[
        float | None, typer.Option(metavar="S", help="From midnight UTC.")
    ] = None,
) -> None:
    """Set a share, or change it: what is not given is not limited."""
    with connect(ctx) as client:
        client.set_share(
            name,
            weight=weight,
            max_running=max_running,
            gpu_seconds_per_day=gpu_seconds_per_day,
        )
    typer.echo(f"set {name}")


@app.command()
def remove(ctx: typer.Context, name: Name) -> None:
    """Forget a share; its tasks go on without."""
    with connect(ctx) as client:
        client.remove_share(name)
    typer.echo(f"removed {name}")
