"""`corral worker-type`: named recipes for workers; `corral scaling`: by demand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from corral.cli.options import script
from corral.cli.options.arguments import read_json, takes
from corral.cli.options.connect import connect
from corral.cli.terminal import output
from corral.errors import NotFound
from corral.wire.workers import TypeScaling, WorkerTypeInfo

app = typer.Typer(no_args_is_help=True, help="Name classes to launch workers of.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="The type's name.")]
Least = Annotated[
    int | None, typer.Option("--min", metavar="N", help="Workers it has always.")
]
Most = Annotated[
    int | None, typer.Option("--max", metavar="N", help="Workers it has at most.")
]
_COLUMNS: output.Columns[WorkerTypeInfo] = {
    "WORKER TYPE": lambda kind: kind.name,
    "VERSION": lambda kind: kind.version,
    "CLASS": lambda kind: kind.worker_class,
    "SERVES": lambda kind: kind.job_type,
    "CODE": lambda kind: _source(kind.environment),
    "GPUS": lambda kind: kind.gpus,
    "MIN": lambda kind: None if kind.max_workers is None else kind.min_workers,
    "MAX": lambda kind: kind.max_workers,
}


@app.command("list")
def list_(ctx: typer.Context, as_json: output.JsonFlag = False) -> None:
    """List worker types."""
    with connect(ctx) as client:
        found = client.worker_types()
    none = "No worker types. Add one: corral worker-type add NAME CLASS"
    output.show_list(found, _COLUMNS, as_json=as_json, none=none)


def _source(environment: Mapping[str, Any] | None) -> str:
    """Where code comes from, in a word or two."""
    for kind, told in (environment or {}).items():
        where = told.get("repo_url") or told.get("image") or told.get("digest", "")[:12]
        at = told.get("commit") or told.get("branch")
        return f"{kind} {where}" + (f" at {at[:12]}" if at else "")
    return "installed"


@app.command("show")
def show_(ctx: typer.Context, name: Name, as_json: output.JsonFlag = False) -> None:
    """Show one worker type."""
    with connect(ctx) as client:
        found = [kind for kind in client.worker_types() if kind.name == name]
    if not found:
        raise NotFound(f"no worker type {name!r}: see 'corral worker-type list'")
    (kind,) = found
    if as_json:
        output.echo_json(kind.to_dict())
        return
    output.facts(
        [
            ("worker type", kind.name),
            ("version", kind.version),
            ("class", kind.worker_class),
            ("serves", kind.job_type),
            ("code", _source(kind.environment)),
            ("params", json.dumps(kind.params) if kind.params else None),
            ("gpus", kind.gpus),
            ("workers", _limits(kind)),
        ]
    )


def _limits(kind: WorkerTypeInfo) -> str:
    if kind.max_workers is None:
        return "not scaled by demand"
    return f"{kind.min_workers} to {kind.max_workers}, by demand"


@app.command("set")
def set_(
    ctx: typer.Context,
    name: Name,
    least: Least = None,
    most: Most = None,
    off: Annotated[
        bool, typer.Option("--off", help="Scale it no more; its workers go on.")
    ] = False,
) -> None:
    """Let demand decide how many workers it has: see 'corral scaling'."""
    if off == (most is not None):
        raise typer.BadParameter("say --max N or --off", param_hint="--max")
    if off and least is not None:
        raise typer.BadParameter("it goes with --max", param_hint="--min")
    with connect(ctx) as client:
        kind = client.scale_worker_type(name, min_workers=least or 0, max_workers=most)
    typer.echo(f"{kind.name}: {_limits(kind)}")


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
    gpus: Annotated[
        str | None,
        typer.Option(metavar="N", help="Cards each of its workers has for itself."),
    ] = None,
    least: Least = None,
    most: Most = None,
    *,
    code: script.ScriptSource,
) -> None:
    """Add a worker type, or replace it.

    Without --git, --dir or --image the class is one that nodes have installed. With
    --max demand decides how many workers it has; what is not said of --min, --max and
    --gpus stays as it was.
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
            min_workers=least,
            max_workers=most,
            gpus=gpus,
        )
    typer.echo(f"added {name}")


@app.command()
def remove(ctx: typer.Context, name: Name) -> None:
    """Forget a worker type; workers launched from it go on."""
    with connect(ctx) as client:
        client.remove_worker_type(name)
    typer.echo(f"removed {name}")


# `corral scaling`: worker types that demand adds workers to and takes them from.


def scaling(ctx: typer.Context, as_json: output.JsonFlag = False) -> None:
    """How worker types with limits stand, and what was decided last."""
    with connect(ctx) as client:
        found = client.scaling()
    if as_json:
        output.echo_json(found.to_dict())
        return
    if not found.enabled:
        output.hint("Autoscaling is off: set CORRAL_AUTO_SCALE_ENABLED=true.")
    if not found.types:
        output.hint("No limits. Set some: corral worker-type set NAME --min 0 --max 4")
        return
    output.table(
        ("WORKER TYPE", "WORKERS", "MIN", "MAX", "WAITING", "WAIT", "LAST DECISION"),
        [_row(kind) for kind in found.types],
    )


def _row(kind: TypeScaling) -> tuple[object, ...]:
    return (
        kind.worker_type,
        _workers(kind),
        kind.min_workers,
        kind.max_workers,
        kind.waiting,
        _wait(kind),
        _decision(kind),
    )


def _workers(kind: TypeScaling) -> str:
    parts = ((kind.starting, "starting"), (kind.leaving, "leaving"))
    more = [f"{count} {word}" for count, word in parts if count]
    return f"{kind.workers} ({', '.join(more)})" if more else str(kind.workers)


def _wait(kind: TypeScaling) -> str:
    if kind.predicted_wait_s is None:
        return "unserved"
    return f"{kind.predicted_wait_s:g} s"


def _decision(kind: TypeScaling) -> str:
    words = f"no more: {kind.blocked}" if kind.blocked else ""
    if kind.last is not None:
        verb = "up" if kind.last.event == "cluster_scaled_up" else "down"
        last = f"{verb} {output.ago(kind.last.at)}: {kind.last.reason}"
        return f"{words}; {last}" if words else last
    return words or "-"
