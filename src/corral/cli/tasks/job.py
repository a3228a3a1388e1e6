"""`corral job`: the same tasks, told in the words of the job API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options import arguments
from corral.cli.options.connect import connect
from corral.cli.tasks.run import follow
from corral.cli.tasks.wait_cancel_requeue import await_all
from corral.cli.terminal import errors, output

if TYPE_CHECKING:
    from corral.wire.job_api import JobStatus

app = typer.Typer(no_args_is_help=True, help="Submit jobs, look at them, wait.")
JobArgument = Annotated[str, typer.Argument(metavar="ID", help="The job.")]


@app.command()
def submit(
    ctx: typer.Context,
    job_type: arguments.TypeArgument,
    payload: arguments.ParametersArgument = None,
    priority: arguments.Priority = None,
    timeout: arguments.Timeout = None,
    retries: arguments.Retries = None,
    label: arguments.Labels = None,
    is_waiting: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait, and print its output.")
    ] = False,
    as_json: output.JsonFlag = False,
) -> None:
    """Submit a job and print its id; with --wait, exits 1 unless it completed."""
    options = arguments.task_options(
        priority=priority, timeout=timeout, retries=retries, label=label
    )
    value = arguments.read_json(payload)
    with connect(ctx) as client:
        job_id = client.submit(job_type, value, **options).task_id
        if is_waiting:
            follow(client, job_id)
        if not is_waiting and not as_json:
            typer.echo(job_id)
            return
        found = client.job_status(job_id)
    if as_json:
        output.echo_json(found.to_dict())
    else:
        output.echo_json(found.output, indent=None)
    if is_waiting:
        _exit_unless_completed(found)


@app.command()
def status(
    ctx: typer.Context, job_id: JobArgument, as_json: output.JsonFlag = False
) -> None:
    """Show a job: where it is, and what it gave."""
    with connect(ctx) as client:
        found = client.job_status(job_id)
    if as_json:
        output.echo_json(found.to_dict())
        return
    job = found.job or {}
    has_ended = found.status not in ("queued", "running")
    output.facts(
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
    as_json: output.JsonFlag = False,
) -> None:
    """Wait until jobs have ended; exits 1 unless all completed."""
    ids = arguments.read_ids(job_ids)
    with connect(ctx) as client:
        if len(ids) == 1 and timeout is None:
            follow(client, ids[0])
        else:
            await_all(client, ids, timeout)
        found = [client.job_status(job_id) for job_id in ids]
    if as_json:
        output.echo_values(found)
    else:
        for job in found:
            typer.echo(f"{job.job_id} {job.status}")
    _exit_unless_completed(*found)


def _exit_unless_completed(*found: JobStatus) -> None:
    failed = [job for job in found if job.status != "completed"]
    for job in failed:
        said = (job.job or {}).get("error")
        more = f": {said}" if said else ""
        output.hint("Error: " + errors.one_line(f"job {job.job_id} {job.status}{more}"))
    if failed:
        raise typer.Exit(errors.FAILED)


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
