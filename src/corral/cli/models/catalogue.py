"""`corral models list | show | add | pull | remove`: the catalogue of models."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options.arguments import ModelName as Name
from corral.cli.options.connect import connect
from corral.cli.terminal import output
from corral.cli.terminal.progress import bar
from corral.errors import TaskFailed

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire.models import CatalogueInfo, ModelPull

_POLL_S = 0.3
_COLUMNS: output.Columns[CatalogueInfo] = {
    "MODEL": lambda model: model.name,
    "TYPE": lambda model: model.type,
    "STATUS": lambda model: model.status,
    "SIZE": lambda model: _sized(model.size_bytes),
    "MEMORY": lambda model: _mb(model.memory_mb),
    "USES": lambda model: model.usage_count or None,
    "USED": lambda model: output.ago(model.last_used),
    "SOURCE": lambda model: model.source,
}


def list_(
    ctx: typer.Context,
    as_json: output.JsonFlag = False,
    type_: Annotated[
        str | None, typer.Option("--type", metavar="T", help="Only of this type.")
    ] = None,
    search: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only with this in their name.")
    ] = None,
) -> None:
    """List the models of the catalogue."""
    with connect(ctx) as client:
        found = client.catalogue(model_type=type_, search=search)
    none = "The catalogue is empty. Add a model: corral models add NAME SOURCE"
    output.show_list(found, _COLUMNS, as_json=as_json, none=none)


def _mb(memory: float | None) -> str:
    if memory is None:
        return ""
    return f"{memory:.0f} MB" if memory >= 10 else f"{memory:.2g} MB"


def _batches(memory_mb: dict[str, float]) -> str:
    """What batches take beside the model: of one call, of eight, ..."""
    sizes = sorted(memory_mb.items(), key=lambda told: int(told[0]))
    return ", ".join(f"{count}: {_mb(size)}" for count, size in sizes)


def _sized(count: int) -> str:
    for size, unit in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB")):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B" if count else ""


def show_(ctx: typer.Context, model: Name, as_json: output.JsonFlag = False) -> None:
    """Show one model: its files, what it takes, who has it."""
    with connect(ctx) as client:
        found = client.catalogue_model(model)
    if as_json:
        output.echo_json(found.to_dict())
        return
    output.facts(
        [
            ("model", found.name),
            ("type", found.type),
            ("source", found.source),
            ("revision", found.revision),
            ("status", found.status),
            ("error", found.error),
            ("size", _sized(found.size_bytes)),
            ("memory", _mb(found.memory_mb)),
            ("dtype", found.dtype),
            ("trust remote code", "yes" if found.trust_remote_code else None),
            ("tags", ", ".join(found.tags)),
            ("uses", found.usage_count or None),
            ("used", found.last_used),
            ("in memory of", ", ".join(found.workers)),
        ]
    )
    if found.measures:
        output.table(
            ("DEVICE", "PRECISION", "MEMORY", "LOADED IN", "LOADS", "BATCHES"),
            [
                (
                    m.device,
                    m.precision,
                    _mb(m.memory_mb),
                    output.took(m.load_time),
                    m.loads,
                    _batches(m.batch_memory_mb),
                )
                for m in found.measures
            ],
        )
    if found.placed:
        output.table(
            ("WORKER", "DEVICE", "PRECISION", "MEMORY", "LAYERS"),
            [
                (
                    p.worker_id,
                    p.device,
                    p.precision,
                    _mb(p.memory_mb),
                    ", ".join(f"{n} on {where}" for where, n in p.layers.items()),
                )
                for p in found.placed
            ],
        )
    if found.files:
        rows = [(f.name, _sized(f.size), f.sha256) for f in found.files]
        output.table(("FILE", "SIZE", "SHA-256"), rows)


def add(
    ctx: typer.Context,
    model: Name,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="hf:owner/name, s3://bucket/prefix, model-manager, or a folder of "
            "the manager's machine.",
        ),
    ],
    type_: Annotated[
        str, typer.Option("--type", metavar="T", help="llm, embedding, vision, tts...")
    ] = "other",
    revision: Annotated[
        str, typer.Option(metavar="R", help="A branch, tag or commit of the hub.")
    ] = "",
    dtype: Annotated[
        str | None, typer.Option(metavar="D", help="The precision it is loaded in.")
    ] = None,
    memory_mb: Annotated[
        float | None,
        typer.Option("--memory-mb", metavar="MB", help="GPU memory, until measured."),
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="WORD", help="To find it by.")
    ] = None,
    upload: Annotated[
        bool, typer.Option("--upload", help="SOURCE is a folder of this machine.")
    ] = False,
    trust_remote_code: Annotated[
        bool,
        typer.Option("--trust-remote-code", help="Code beside the weights may run."),
    ] = False,
    wait: Annotated[
        bool, typer.Option(help="Wait until its source has been read.")
    ] = True,
) -> None:
    """Add a model to the catalogue, or read its source anew."""
    with connect(ctx) as client:
        if upload:
            with bar(f"sending {model}", is_bytes=True) as advance:
                found = client.upload_model(
                    model,
                    Path(source),
                    model_type=type_,
                    dtype=dtype,
                    memory_mb=memory_mb,
                    tags=tag or (),
                    trust_remote_code=trust_remote_code,
                    on_progress=advance,
                )
        else:
            found = client.add_model(
                model,
                source,
                model_type=type_,
                revision=revision,
                dtype=dtype,
                memory_mb=memory_mb,
                tags=tag or (),
                trust_remote_code=trust_remote_code,
            )
        if wait:
            found = _read(client, found)
    if found.status == "failed":
        raise TaskFailed(f"{model}: {found.error}")
    count = len(found.files)
    what = f"{count} files, {_sized(found.size_bytes)}" if count else found.status
    typer.echo(f"added {model}: {what}")


def _read(client: Client, found: CatalogueInfo) -> CatalogueInfo:
    with bar(f"reading {found.name}", is_bytes=True) as advance:
        while found.status == "reading":
            advance(found.read_bytes or 0, found.total_bytes)
            time.sleep(_POLL_S)
            found = client.catalogue_model(found.name)
    return found


def pull(
    ctx: typer.Context,
    model: Name,
    node: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", help="Their ids or hostnames; else all."),
    ] = None,
) -> None:
    """Have nodes fetch a model's files now, before a task needs them."""
    with connect(ctx) as client:
        ids = [client.find_node(name).node_id for name in node or ()]
        pulls = client.pull_model(model, ids)
        failed = _follow(client, model, pulls)
    if failed:
        raise TaskFailed(f"{failed} of {len(pulls)} nodes could not fetch {model}")


def _follow(client: Client, model: str, pulls: Sequence[ModelPull]) -> int:
    """Show one bar for all of them; how many failed."""
    open_ones = {pull.task_id: pull for pull in pulls}
    shares = dict.fromkeys(open_ones, 0.0)
    failed = 0
    with bar(f"fetching {model}") as advance:
        while open_ones:
            for task_id, told in list(open_ones.items()):
                task = client.get_task(task_id)
                if task.progress is not None and task.progress.fraction is not None:
                    shares[task_id] = task.progress.fraction
                if not task.is_terminal:
                    continue
                shares[task_id] = 1.0
                del open_ones[task_id]
                failed += not task.is_completed
                why = "" if task.error is None else f": {task.error.message}"
                word = "fetched" if task.is_completed else task.status
                typer.echo(f"{told.node_id} {word} {model}{why}")
            advance(int(100 * sum(shares.values()) / len(shares)), 100)
            if open_ones:
                time.sleep(_POLL_S)
    return failed


def remove(ctx: typer.Context, model: Name) -> None:
    """Take a model out of the catalogue; nodes keep its files until they need room."""
    with connect(ctx) as client:
        client.remove_model(model)
    typer.echo(f"removed {model}")
