"""`corral scaling`: worker types that demand adds workers to and takes them from."""

from __future__ import annotations

import typer

from corral.cli import show
from corral.cli.connect import connect
from corral.client.calls.workers import TypeScaling


def scaling(ctx: typer.Context, as_json: show.JsonFlag = False) -> None:
    """How worker types with limits stand, and what was decided last."""
    with connect(ctx) as client:
        found = client.scaling()
    if as_json:
        show.echo_json(found.to_dict())
        return
    if not found.enabled:
        show.hint("Autoscaling is off: set CORRAL_AUTO_SCALE_ENABLED=true.")
    if not found.types:
        show.hint("No limits. Set some: corral worker-type set NAME --min 0 --max 4")
        return
    show.table(
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
        last = f"{verb} {show.ago(kind.last.at)} ago: {kind.last.reason}"
        return f"{words}; {last}" if words else last
    return words or "-"
