"""`corral route add | list | remove`: where the gateway forwards to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corral.cli.options.connect import connect
from corral.cli.terminal import output
from corral.errors import NotFound

if TYPE_CHECKING:
    from corral.wire.queues import AppInfo, JobTypeInfo

app = typer.Typer(no_args_is_help=True, help="Forward requests and jobs to services.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="What it is reached under.")]
_COLUMNS: output.Columns[dict[str, Any]] = {
    "ROUTE": lambda row: row["route"],
    "URL": lambda row: row["url"],
    "TIMEOUT": lambda row: output.took(row["timeout"]),
    "JOB TYPE": lambda row: row["job_type"],
}


@app.command()
def add(
    ctx: typer.Context,
    name: Name,
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="[URL]", help="The service; not needed for a known one."
        ),
    ] = None,
    path: Annotated[
        str | None, typer.Option(metavar="PATH", help="Only what is below this path.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="S", help="Seconds it may be silent.", min=0),
    ] = None,
    job_type: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="Send jobs of this type there, too."),
    ] = None,
) -> None:
    """Forward what comes under a name, or a path of it, to an HTTP service."""
    place = "" if path is None else "/" + path.strip("/")
    if url is None and not (job_type or (place and timeout is not None)):
        raise typer.BadParameter("give it, or --job-type, or --path with --timeout")
    with connect(ctx) as client:
        if url is not None:
            client.register_app(name, url, timeout=None if place else timeout)
        if place and timeout is not None:
            client.add_route(name, place, timeout)
        if job_type is not None:
            client.target_job_type(job_type, name + place)
    typer.echo(f"added {name}{place}")


@app.command("list")
def list_(ctx: typer.Context, as_json: output.JsonFlag = False) -> None:
    """List services, their paths with a timeout of their own, and job types there."""
    with connect(ctx) as client:
        found, kinds = client.apps(), client.job_types()
    rows = [row for app in found for row in _rows(app, kinds)]
    none = "No routes. Add one: corral route add NAME URL"
    output.show_list(rows, _COLUMNS, as_json=as_json, none=none)


def _rows(app: AppInfo, kinds: list[JobTypeInfo]) -> Iterator[dict[str, Any]]:
    """The app, each path with its own timeout, and where each job type goes."""
    limits = {route.path: route.timeout for route in app.routes}
    targets = {
        kind.name: kind.target.removeprefix(app.name)
        for kind in kinds
        if kind.target and kind.name in app.job_types
    }
    for path in ["", *sorted({*limits, *targets.values()} - {""})]:
        names = sorted(name for name, target in targets.items() if target == path)
        served: list[str | None] = [*names] or [None]
        for job_type in served:
            yield {
                "route": app.name + path,
                "url": app.url.rstrip("/") + path,
                "timeout": _limit(app, limits, path),
                "job_type": job_type,
            }


def _limit(app: AppInfo, limits: dict[str, float], path: str) -> float:
    below = [p for p in limits if f"{path}/".startswith(f"{p.rstrip('/')}/")]
    return limits[max(below, key=len)] if below else app.timeout


@app.command()
def remove(
    ctx: typer.Context,
    name: Name,
    path: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Only the timeout this path has."),
    ] = None,
    job_type: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="Only send its jobs to workers again."),
    ] = None,
) -> None:
    """Stop forwarding to a service, or take one thing from its route."""
    with connect(ctx) as client:
        if job_type is not None:
            _require_target(name, job_type, client.apps())
            client.target_job_type(job_type, None)
        if path is not None:
            client.remove_route(name, "/" + path.strip("/"))
        if path is None and job_type is None:
            client.remove_app(name)
    typer.echo(f"removed {' '.join(filter(None, (name, path, job_type)))}")


def _require_target(name: str, job_type: str, found: list[AppInfo]) -> None:
    if not any(a.name == name and job_type in a.job_types for a in found):
        raise NotFound(f"jobs of type {job_type!r} do not go to {name!r}")
