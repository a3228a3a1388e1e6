"""`corral metrics`: how the cluster, or a node with its GPUs, fared, as small plots."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from corral.cli.options.connect import connect
from corral.cli.terminal import output

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire.insight import ClusterMetrics, MetricSeries, NodeMetrics
    from corral.wire.queues import CacheInfo

# From low to high, and last what stands for a gap.
_BLOCKS, _PLAIN = "▁▂▃▄▅▆▇█·", "_-~:=+*#."
_GIB = 1024.0
_MB = 1_000_000.0
_WIDTH = 60
# Each series of a node as it is shown: its name, its unit, and what one unit is.
_NODE: Mapping[str, tuple[str, str, float]] = {
    "cpu_percent": ("CPU", "%", 1.0),
    "memory_percent": ("memory", "%", 1.0),
    "disk_percent": ("disk", "%", 1.0),
    "load_1m": ("load", "", 1.0),
    "network_rx_bytes_s": ("received", "MB/s", _MB),
    "network_tx_bytes_s": ("sent", "MB/s", _MB),
}
_GPU: Mapping[str, tuple[str, str, float]] = {
    "utilization_percent": ("use", "%", 1.0),
    "memory_used_mb": ("memory", "GiB", _GIB),
    "temperature_c": ("heat", "C", 1.0),
    "power_w": ("power", "W", 1.0),
}
_CLUSTER: Mapping[str, tuple[str, str, float]] = {
    "cpu_percent": ("CPU", "%", 1.0),
    "memory_used_mb": ("memory", "GiB", _GIB),
    "gpu_utilization_percent": ("GPU use", "%", 1.0),
    "gpu_memory_used_mb": ("GPU memory", "GiB", _GIB),
}
_COLUMNS = ("", "", "NOW", "MEAN", "MOST", "")


def metrics(
    ctx: typer.Context,
    node: Annotated[
        str | None,
        typer.Argument(metavar="NODE", help="A node's id or name; else the cluster."),
    ] = None,
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Like 90m, 24h or 7d; of the cluster 1h, 24h, 7d or 30d.",
        ),
    ] = "24h",
    as_json: output.JsonFlag = False,
) -> None:
    """Show figures over time: CPU, memory, disk, network, GPUs and tasks."""
    with connect(ctx) as client:
        if node is None:
            cluster = client.cluster_metrics(since)
            output.echo_json(cluster.to_dict()) if as_json else _show_cluster(cluster)
            return
        ago = since if since.startswith("-") or not since[:1].isdigit() else f"-{since}"
        found = client.node_metrics(_id_of(client, node), since=ago)
    output.echo_json(found.to_dict()) if as_json else _show_node(found)


def _id_of(client: Client, name: str) -> str:
    """The id of the node that is called so; what was given where none or many are."""
    nodes = client.nodes()
    if any(node.node_id == name for node in nodes):
        return name
    called = [node.node_id for node in nodes if node.hostname == name]
    return called[0] if len(called) == 1 else name


def _show_node(found: NodeMetrics) -> None:
    _heading(found.node_id, found.begin, found.to, found.step_s)
    _plots(_NODE, found.series)
    for gpu in found.gpus:
        typer.echo()
        typer.echo(output.cell(f"GPU {gpu.index} {gpu.name} ({gpu.id})"))
        _plots(_GPU, gpu.series)


def _show_cluster(found: ClusterMetrics) -> None:
    told = found.metrics
    _heading("cluster", found.begin, found.to, found.step_s)
    rate, time_s = told.success_rate, told.average_response_time
    output.facts(
        [
            ("tasks", f"{told.total_tasks} ended, {told.failed_tasks} failed"),
            ("success", output.percent(None if rate is None else 100 * rate)),
            ("mean time", "" if time_s is None else output.took(time_s)),
            ("at most", f"{told.peak_throughput:g} tasks a minute"),
            ("kept results", _kept(told.result_cache)),
        ]
    )
    _plots(_CLUSTER, found.series)


def _kept(told: CacheInfo) -> str:
    """What the result cache did; nothing where no type has one."""
    if told.hit_rate is None:
        return ""
    size = told.bytes / (1 << 20)
    return f"{told.entries} ({size:.3g} MiB), {told.hit_rate:.0%} hits"


def _heading(
    what: str, begin: datetime | None, end: datetime | None, step_s: int
) -> None:
    step = output.took(step_s)
    typer.echo(f"{what}  {output.cell(begin)} to {output.cell(end)}, steps of {step}")


def _plots(
    kinds: Mapping[str, tuple[str, str, float]], series: Mapping[str, MetricSeries]
) -> None:
    rows = [
        _row(name, unit, size, series[key])
        for key, (name, unit, size) in kinds.items()
        if key in series and any(v is not None for v in series[key].average)
    ]
    if rows:
        output.table(_COLUMNS, rows)
    else:
        output.hint("No readings in this time.")


def _row(name: str, unit: str, size: float, series: MetricSeries) -> tuple[str, ...]:
    known = [v / size for v in series.average if v is not None]
    most = max((v / size for v in series.maximum if v is not None), default=known[-1])
    values = [None if v is None else v / size for v in series.average]
    top = 100.0 if unit == "%" else most
    figures = (f"{v:.3g} {unit}".rstrip() for v in (known[-1], _mean(known), most))
    return name, spark(values, top, _width()), *figures, _outlook(series)


def _outlook(series: MetricSeries) -> str:
    at = series.trend.full_at
    if at is None:
        return ""
    left_s = (at - datetime.now(UTC)).total_seconds()
    return "full" if left_s <= 0 else f"full in {output.took(left_s)}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _width() -> int:
    return max(10, min(_WIDTH, shutil.get_terminal_size().columns - 50))


def spark(values: Sequence[float | None], top: float, width: int) -> str:
    """A line of blocks from 0 to `top`; a gap is a dot."""
    marks = _BLOCKS if _can_show(_BLOCKS) else _PLAIN
    blocks, gap = marks[:-1], marks[-1]
    return "".join(
        gap if value is None else _block(blocks, value, top)
        for value in _squeezed(values, width)
    )


def _block(blocks: str, value: float, top: float) -> str:
    share = min(max(value / top, 0.0), 1.0) if top > 0 else 0.0
    return blocks[min(int(share * len(blocks)), len(blocks) - 1)]


def _squeezed(values: Sequence[float | None], width: int) -> Iterable[float | None]:
    """No more than `width` values, each the mean of those it stands for."""
    count = min(width, len(values))
    for place in range(count):
        first = place * len(values) // count
        last = (place + 1) * len(values) // count
        known = [v for v in values[first:last] if v is not None]
        yield _mean(known) if known else None


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
