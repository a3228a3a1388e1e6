"""`corral status`: the cluster on one screen, once or kept up to date.

An overview is read from the manager at one moment, and laid out.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from corral.cli.options.connect import FIRST_S, connect, reach_of
from corral.cli.terminal import output
from corral.cli.words import node as node_words
from corral.cli.words import worker as worker_words
from corral.errors import AuthError, CorralError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from corral.client import Client, ClusterStatus
    from corral.wire.events import AlertInfo, ClusterHealth
    from corral.wire.nodes import NodeInfo
    from corral.wire.workers import WorkerInfo


T = TypeVar("T")

_ORDER = ("queued", "running", "completed", "failed", "timed_out", "cancelled", "error")
_COLUMNS = (
    *("NODE", "TYPE", "STATUS", "CPU", "MEMORY", "DISK"),
    *("GPUS", "WORKERS", "TASKS", "HEARTBEAT"),
)
_NOT_THERE = (403, 404, 405)
_FEW = 3
_EVERY_S = 2.0
_SHORTEST_S = 0.2
_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Overview:
    """The cluster at one moment; `health` and `alerts` where the manager has them."""

    url: str
    status: ClusterStatus
    nodes: Sequence[NodeInfo]
    workers: Sequence[WorkerInfo]
    health: ClusterHealth | None = None
    alerts: Sequence[AlertInfo] | None = None

    def tasks_of(self, node: NodeInfo) -> int:
        """How many tasks the node's workers have."""
        return sum(w.current_tasks for w in self.workers_of(node))

    def workers_of(self, node: NodeInfo) -> list[WorkerInfo]:
        found = [w for w in self.workers if w.node_id == node.node_id]
        return sorted(found, key=worker_words.name)


def read_overview(client: Client) -> Overview:
    return Overview(
        client.url,
        client.cluster_status(),
        sorted(client.nodes(), key=_place),
        client.workers(),
        _optional(client.cluster_health),
        _optional(client.alerts),
    )


def _place(node: NodeInfo) -> tuple[bool, str, str]:
    return node.node_type != "master", node.hostname, node.node_id


def _optional(call: Callable[[], T]) -> T | None:
    """An answer that not every manager gives, and not to every key."""
    try:
        return call()
    except CorralError as error:
        if getattr(error, "status", None) in _NOT_THERE:
            return None
        raise


def to_plain(told: Overview, *, with_workers: bool) -> dict[str, Any]:
    """All of it as JSON."""
    nodes = [{**n.to_dict(), "tasks": told.tasks_of(n)} for n in told.nodes]
    plain: dict[str, Any] = {**told.status.to_dict(), "nodes": nodes}
    if told.health is not None:
        plain["reasons"] = [reason.to_dict() for reason in told.health.reasons]
    if told.alerts is not None:
        plain["alerts"] = [alert.to_dict() for alert in told.alerts]
    if with_workers:
        plain["workers"] = [worker.to_dict() for worker in told.workers]
    return plain


def overview_grids(told: Overview, *, with_workers: bool) -> list[Table]:
    """The facts, and below them the nodes where there are any."""
    found = [output.facts_grid(_facts(told))]
    if told.nodes:
        rows = list(_rows(told, with_workers=with_workers))
        found.append(output.table_grid(_COLUMNS, rows))
    return found


def _facts(told: Overview) -> Iterator[tuple[str, Any]]:
    found = told.status
    yield "status", found.status
    yield "health", _health(told)
    yield "alerts", _alerts(told)
    yield "manager", f"{told.url}, version {found.version or 'unknown'}"
    yield "up for", output.took(found.uptime_s)
    yield "nodes", f"{found.online_nodes} online of {found.total_nodes}"
    yield "workers", f"{found.active_workers} active of {found.total_workers}"
    yield "tasks", _tasks(found)
    yield "memory", _memory(found)
    yield "GPU", output.percent(found.gpu_utilization)


def _health(told: Overview) -> str:
    if told.health is None:
        return ""
    reasons = [reason.title or reason.rule for reason in told.health.reasons]
    word = told.health.status
    return f"{word} ({_some(reasons)})" if reasons else word


def _alerts(told: Overview) -> str:
    if not told.alerts:
        return ""
    titles = [alert.title or alert.rule for alert in told.alerts]
    return f"{len(titles)} open: {_some(titles)}"


def _some(words: Sequence[str]) -> str:
    shown = "; ".join(words[:_FEW])
    return shown if len(words) <= _FEW else f"{shown}; and {len(words) - _FEW} more"


def _tasks(found: ClusterStatus) -> str:
    counts = dict(found.tasks)
    # Users know no `assigned`: to them such a task is still queued.
    counts["queued"] = counts.get("queued", 0) + counts.pop("assigned", 0)
    counts = counts if found.tasks else {"queued": found.queued_tasks}
    counts.setdefault("running", found.running_tasks)
    words = [f"{counts[state]} {state}" for state in _ORDER if counts.get(state)]
    return ", ".join(words) or "none"


def _memory(found: ClusterStatus) -> str:
    if not found.total_memory_mb:
        return ""
    free = (found.available_memory_mb or 0) / 1024
    return f"{free:.1f} GiB free of {found.total_memory_mb / 1024:.1f} GiB"


def _rows(told: Overview, *, with_workers: bool) -> Iterator[Sequence[Any]]:
    for node in told.nodes:
        own = {
            "NODE": node_words.name(node),
            "TYPE": node.node_type,
            "TASKS": told.tasks_of(node),
        }
        yield [
            own[title] if title in own else node_words.COLUMNS[title](node)
            for title in _COLUMNS
        ]
        for worker in told.workers_of(node) if with_workers else ():
            yield _worker(worker)


def _worker(worker: WorkerInfo) -> Sequence[Any]:
    shown = f"- {worker_words.name(worker)}"
    cells = {
        "NODE": f"{shown}: {worker.error}" if worker.error else shown,
        "STATUS": worker.status,
        "WORKERS": worker_words.serves(worker),
        "TASKS": worker.current_tasks,
        "HEARTBEAT": output.ago(worker.last_heartbeat),
    }
    return [cells.get(title, "") for title in _COLUMNS]


def status(
    ctx: typer.Context,
    seconds: Annotated[
        float | None,
        typer.Argument(metavar="[SECONDS]", help="With --watch: how often; else 2."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep it up to date until Ctrl-C.")
    ] = False,
    workers: Annotated[
        bool, typer.Option("--workers", help="Show the workers of each node.")
    ] = False,
    as_json: output.JsonFlag = False,
) -> None:
    """Show how the cluster does: health, nodes, workers and tasks."""
    if seconds is not None and not watch:
        raise typer.BadParameter("only with --watch", param_hint="SECONDS")
    if watch:
        every_s = max(_EVERY_S if seconds is None else seconds, _SHORTEST_S)
        _watch(ctx, every_s, with_workers=workers, as_json=as_json)
        return
    with connect(ctx) as client:
        told = read_overview(client)
    _print(told, with_workers=workers, as_json=as_json)
    if not as_json:
        _advise(told.status)


def _print(told: Overview, *, with_workers: bool, as_json: bool) -> None:
    if as_json:
        output.echo_json(to_plain(told, with_workers=with_workers))
        return
    for number, grid in enumerate(overview_grids(told, with_workers=with_workers)):
        if number:
            typer.echo()
        output.print_grid(grid)


def _watch(
    ctx: typer.Context, every_s: float, *, with_workers: bool, as_json: bool
) -> None:
    """Look again and again; a manager that is away for a while is said to be."""
    from corral.client import Client, Patience

    reach = reach_of(ctx)
    # It looks again by itself: to wait in between would only freeze the picture.
    patience = Patience(total_s=0.0, first_s=FIRST_S)
    with Client(reach.url, home=reach.home, patience=patience) as client:
        last = read_overview(client)
        try:
            if as_json or not sys.stdout.isatty():
                _follow(client, last, every_s, with_workers, as_json)
            else:
                with _screen() as draw:
                    _redraw(client, last, every_s, draw, with_workers)
        except KeyboardInterrupt:
            raise typer.Exit(_INTERRUPTED) from None


def _follow(
    client: Client, last: Overview, every_s: float, with_workers: bool, as_json: bool
) -> None:
    """Picture after picture, for a pipe."""
    _print(last, with_workers=with_workers, as_json=as_json)
    while True:
        time.sleep(every_s)
        told, fault = _look(client)
        if told is None:
            output.hint(fault)
            continue
        if not as_json:
            typer.echo()
        _print(told, with_workers=with_workers, as_json=as_json)


def _redraw(
    client: Client,
    last: Overview,
    every_s: float,
    draw: Callable[[RenderableType], None],
    with_workers: bool,
) -> None:
    from rich.console import Group
    from rich.text import Text

    told: Overview | None = last
    fault, seen_at = "", datetime.now().astimezone()
    while True:
        if told is not None:
            last, seen_at = told, datetime.now().astimezone()
        head = Text(f"{seen_at:%H:%M:%S}, every {every_s:g} s, Ctrl-C ends it", "dim")
        if told is None:
            head = Text(f"as of {seen_at:%H:%M:%S}; now: {fault}", "bold red")
        grids = overview_grids(last, with_workers=with_workers)
        parts = [part for grid in grids for part in (Text(), grid)]
        draw(Group(head, *parts))
        time.sleep(every_s)
        told, fault = _look(client)


def _look(client: Client) -> tuple[Overview | None, str]:
    """The cluster now, or why it cannot be seen; a wrong key stays wrong."""
    try:
        return read_overview(client), ""
    except AuthError:
        raise
    except CorralError as error:
        # What to do about it is no news to whoever watches.
        return None, error.message.partition(": ")[0]


@contextlib.contextmanager
def _screen() -> Iterator[Callable[[RenderableType], None]]:
    """Draws in place, whole pictures only, and leaves the last one."""
    from rich.console import Console
    from rich.live import Live

    console = Console(markup=False, highlight=False, emoji=False)
    with Live(console=console, auto_refresh=False) as live:
        yield lambda picture: live.update(picture, refresh=True)


def _advise(found: ClusterStatus) -> None:
    if not found.total_nodes:
        output.hint(
            "No machine has joined: 'corral token create' here, then "
            "'CORRAL_JOIN_TOKEN=TOKEN corral join URL' there."
        )
    elif not found.total_workers:
        output.hint("No worker runs: start one with 'corral worker launch CLASS'.")
