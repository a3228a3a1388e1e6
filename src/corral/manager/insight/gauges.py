"""What `/metrics` tells of the moment: nodes, cards, workers, queues, models.

Taken from memory when somebody asks; it looks at nodes and workers, never at tasks or
the store.
"""

from __future__ import annotations

import os
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import psutil

from corral import __version__
from corral.core.nodes.gpu import Gpu, GpuHealth
from corral.core.nodes.node import NodeState, Sample
from corral.core.nodes.worker import WorkerState
from corral.core.tasks.job_type import OWN_TYPES
from corral.manager.cluster.links import NodeLink
from corral.manager.insight.prometheus import (
    Count,
    Gauge,
    Labels,
    MetricFamily,
    largest,
)

if TYPE_CHECKING:
    from corral.manager.app import Manager

_MB = 1 << 20
_GB = 1 << 30
_NODE = ("node", "name")
_CARD = (*_NODE, "gpu", "model")


def read(manager: Manager) -> Iterator[MetricFamily]:
    """Every figure of the moment."""
    yield Gauge(
        "corral_build_info", "Which version this is.", {(__version__,): 1}, ("version",)
    )
    yield from _queues(manager)
    yield from _nodes(manager)
    yield from _workers(manager)
    yield from _cards(manager)
    yield from _models(manager)
    yield from _health(manager)
    yield from _process()


def _queues(manager: Manager) -> Iterator[MetricFamily]:
    scheduler = manager.cluster.scheduler
    by_type = scheduler.waiting_by_type()
    counts = {name: 0.0 for name in manager.cluster.job_types if name not in OWN_TYPES}
    counts |= {name: n for name, n in by_type.items() if name not in OWN_TYPES}
    yield Gauge(
        "corral_queue_depth",
        "Tasks that wait, by their type.",
        largest(counts),
        ("task_type",),
    )
    held = len(manager.cluster.tasks) - scheduler.waiting_count()
    yield Gauge("corral_tasks_active", "Tasks that workers have in hand.", max(0, held))
    yield from _kept_results(manager)


def _kept_results(manager: Manager) -> Iterator[MetricFamily]:
    of_types, name = manager.caching.by_type().items(), "corral_result_cache"
    labels = ("task_type",)
    yield Count(
        f"{name}_hits_total",
        "Tasks answered from kept results.",
        largest({kind: told.hits for kind, told in of_types}),
        labels,
    )
    yield Count(
        f"{name}_misses_total",
        "Tasks whose result was not kept, of types that keep results.",
        largest({kind: told.misses for kind, told in of_types}),
        labels,
    )
    yield Gauge(
        f"{name}_entries",
        "Results that are kept.",
        largest({kind: told.kept.entries for kind, told in of_types}),
        labels,
    )
    yield Gauge(
        f"{name}_bytes",
        "What kept results take.",
        largest({kind: told.kept.size for kind, told in of_types}),
        labels,
    )


def _nodes(manager: Manager) -> Iterator[MetricFamily]:
    links = [n for n in manager.cluster.nodes.values() if _is_here(n)]
    states = Tally(str(link.node.state) for link in links)
    rows: dict[Labels, float | None] = {
        (str(state),): states[state] for state in NodeState if state != NodeState.LEFT
    }
    yield Gauge("corral_nodes", "Nodes, by their state.", rows, ("status",))
    now = manager.clock.monotonic()
    yield Gauge(
        "corral_node_heartbeat_age_seconds",
        "Since when a node was last heard.",
        {_names(n): max(0.0, now - n.seen) for n in links if not n.is_own},
        _NODE,
    )
    for name, text, figure in _OF_NODE:
        figures = {_names(n): figure(n.sample) for n in links if n.sample is not None}
        yield Gauge(f"corral_node_{name}", text, figures, _NODE)


_OF_NODE: tuple[tuple[str, str, Callable[[Sample], float]], ...] = (
    ("cpu_ratio", "Use of a node's processors.", lambda s: s.cpu_percent / 100),
    (
        "memory_used_bytes",
        "Memory of a node in use.",
        lambda s: s.memory_used_mb * _MB,
    ),
    ("memory_bytes", "Memory of a node.", lambda s: s.memory_total_mb * _MB),
    ("disk_used_bytes", "Disk of a node in use.", lambda s: s.disk_used_gb * _GB),
    ("disk_bytes", "Disk of a node.", lambda s: s.disk_total_gb * _GB),
)


def _is_here(link: NodeLink) -> bool:
    return link.node.state is not NodeState.LEFT


def _names(link: NodeLink) -> Labels:
    return (link.node.id, link.node.hostname)


def _workers(manager: Manager) -> Iterator[MetricFamily]:
    links = list(manager.cluster.workers.values())
    states = Tally(str(link.worker.state) for link in links)
    rows: dict[Labels, float | None] = {(str(s),): states[s] for s in WorkerState}
    yield Gauge("corral_workers", "Workers, by their state.", rows, ("status",))
    nodes = manager.cluster.nodes
    busy: dict[Labels, float | None] = {_names(n): 0.0 for n in nodes.values()}
    for link in links:
        if (node := nodes.get(link.worker.node_id)) is not None:
            tasks = sum(len(order.left) for order in link.orders.values())
            busy[_names(node)] = (busy[_names(node)] or 0.0) + tasks
    yield Gauge(
        "corral_node_tasks", "Tasks that the workers of a node have.", busy, _NODE
    )


def _cards(manager: Manager) -> Iterator[MetricFamily]:
    cards = [
        ((*_names(link), str(card.index), card.name), card)
        for link in manager.cluster.nodes.values()
        if _is_here(link)
        for card in link.gpus or ()
    ]
    for name, text, figure in _OF_CARD:
        rows = {labels: figure(card) for labels, card in cards}
        yield Gauge(f"corral_gpu_{name}", text, rows, _CARD)


def _times(figure: float | None, unit: float) -> float | None:
    return None if figure is None else figure * unit


_OF_CARD: tuple[tuple[str, str, Callable[[Gpu], float | None]], ...] = (
    (
        "memory_used_bytes",
        "Memory of a card in use by anybody.",
        lambda c: _times(c.memory_used_mb, _MB),
    ),
    ("memory_bytes", "Memory of a card.", lambda c: _times(c.memory_total_mb, _MB)),
    (
        "utilization_ratio",
        "Use of a card.",
        lambda c: _times(c.utilization_percent, 0.01),
    ),
    ("temperature_celsius", "Temperature of a card.", lambda c: c.temperature_c),
    ("power_watts", "What a card draws.", lambda c: c.power_w),
    (
        "healthy",
        "1 while a card can be read and is not in quarantine.",
        lambda c: float(c.error is None and c.health is GpuHealth.OK),
    ),
)


def _models(manager: Manager) -> Iterator[MetricFamily]:
    held: Tally[str] = Tally()
    sizes: dict[str, float] = {}
    for link in manager.cluster.workers.values():
        for model in link.shelf.held.values():
            held[model.name] += 1
            size = (link.shelf.takes_mb(model) or 0.0) * _MB
            sizes[model.name] = sizes.get(model.name, 0.0) + size
    yield Gauge(
        "corral_model_workers",
        "Workers that have a model in memory.",
        largest(held),
        ("model",),
    )
    yield Gauge(
        "corral_model_memory_bytes",
        "Memory that a model takes on all workers, where they say.",
        largest(sizes),
        ("model",),
    )


def _health(manager: Manager) -> Iterator[MetricFamily]:
    reasons = manager.alarm.alerting.health().reasons
    open_alerts = Tally(str(reason.finding.severity) for reason in reasons)
    severities = ("info", "warning", "error", "critical")
    yield Gauge(
        "corral_alerts",
        "Alerts that are open.",
        {(name,): open_alerts[name] for name in severities},
        ("severity",),
    )
    is_up = manager.dispatching.is_engine_up
    yield Gauge("corral_engine_up", "1 while Redis answers.", float(is_up))


def _process() -> Iterator[MetricFamily]:
    process = psutil.Process(os.getpid())
    with process.oneshot():
        times = process.cpu_times()
        resident, began = process.memory_info().rss, process.create_time()
    yield Count(
        "process_cpu_seconds_total",
        "Processor time of the manager.",
        times.user + times.system,
    )
    yield Gauge("process_resident_memory_bytes", "Memory of the manager.", resident)
    yield Gauge("process_start_time_seconds", "When the manager began.", began)
