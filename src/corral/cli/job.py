"""`corral job`: the same tasks, told in the words of the job API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli import argument, fault, show
from corral.cli.connect import connect
from corral.cli.run import follow
from corral.cli.wait import await_all

if TYPE_CHECKING:
    from corral.client.job_values import JobStatus

app = typer.Typer(no_args_is_help=True, help="Submit jobs, look at them, wait.")
JobArgument = Annotated[str, typer.Argument(metavar="ID", help="The job.")]


@app.command()
def submit(
    ctx: typer.Context,
    job_type: argument.TypeArgument,
    payload: argument.ParametersArgument = None,
    priority: argument.Priority = None,
    timeout: argument.Timeout = None,
    retries: argument.Retries = None,
    label: argument.Labels = None,
    is_waiting: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait, and print its output.")
    ] = False,
    as_json: show.JsonFlag = False,
) -> None:
    """Submit a job and print its id; with --wait, exits 1 unless it completed."""
    options = argument.task_options(
        priority=priority, timeout=timeout, retries=retries, label=label
    )
    value = argument.read_json(payload)
    with connect(ctx) as client:
        job_id = client.submit(job_type, value, **options).task_id
        if is_waiting:
            follow(client, job_id)
        if not is_waiting and not as_json:
            typer.echo(job_id)
            return
        found = client.job_status(job_id)
    if as_json:
        show.echo_json(found.to_dict())
    else:
        show.echo_json(found.output, indent=None)
    if is_waiting:
        _exit_unless_completed(found)


@app.command()
def status(
    ctx: typer.Context, job_id: JobArgument, as_json: show.JsonFlag = False
) -> None:
    """Show a job: where it is, and what it gave."""
    with connect(ctx) as client:
        found = client.job_status(job_id)
    if as_json:
        show.echo_json(found.to_dict())
        return
    job = found.job or {}
    has_ended = found.status not in ("queued", "running")
    show.facts(
        [
            ("job", found.job_id),
            ("type", job.get("schema_name")),
            ("status", found.status),
            ("payload", json.dumps(job.get("payload"), ensure_ascii=False)),
            ("priority", job.get("priority")),
            ("worker", found.worker_id),
            ("created", job.get("created_at")),
            ("started", job.get("started_at")),
            ("completed", job.get("completed_at")),
            ("error", job.get("error")),
            ("output", _output(found) if has_ended else None),
        ]
    )


def _output(found: JobStatus) -> str:
    return json.dumps(found.output, ensure_ascii=False)


@app.command()
def wait(
    ctx: typer.Context,
    job_ids: Annotated[
        list[str], typer.Argument(metavar="ID...", help="Jobs; - reads ids from stdin.")
    ],
    timeout: Annotated[
        float | None,
        typer.Option(metavar="S", help="Seconds to wait at most.", min=0),
    ] = None,
    as_json: show.JsonFlag = False,
) -> None:
    """Wait until jobs have ended; exits 1 unless all completed."""
    ids = argument.read_ids(job_ids)
    with connect(ctx) as client:
        if len(ids) == 1 and timeout is None:
            follow(client, ids[0])
        else:
            await_all(client, ids, timeout)
        found = [client.job_status(job_id) for job_id in ids]
    if as_json:
        show.echo_values(found)
    else:
        for job in found:
            typer.echo(f"{job.job_id} {job.status}")
    _exit_unless_completed(*found)


def _exit_unless_completed(*found: JobStatus) -> None:
    failed = [job for job in found if job.status != "completed"]
    for job in failed:
        said = (job.job or {}).get("error")
        more = f": {said}" if said else ""
        show.hint("Error: " + fault.one_line(f"job {job.job_id} {job.status}{more}"))
    if failed:
        raise typer.Exit(fault.FAILED)


@app.command()
def clear(
    ctx: typer.Context,
    is_sure: Annotated[
        bool, typer.Option("--yes", help="Do not ask whether to do it.")
    ] = False,
) -> None:
    """Cancel and remove every job, dead letter, worker type and target."""
    with connect(ctx) as client:
        if not is_sure:
            typer.confirm(f"Remove all jobs of {client.url}?", abort=True, err=True)
        client.clear_databases()
    typer.echo("cleared")
