"""The rules a cluster's health is judged by, as a table that can be read.

Pure: each rule looks at one picture of the cluster and says what is wrong in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from corral.core.insight.health import (
    CLUSTER,
    ClusterSnapshot,
    Finding,
    Look,
    NodeReading,
    Rule,
    Severity,
    Thresholds,
    line,
)
from corral.core.nodes.gpu import Gpu
from corral.core.nodes.node import NodeState, Sample

LEAST_ENDED = 20
"""Fewer attempts than this say nothing about how many fail."""
_HOTTER_C = 5.0


def judge(now: ClusterSnapshot, limits: Thresholds) -> list[Finding]:
    """All that is wrong, and all that is nearly so."""
    return [finding for rule in RULES for finding in rule.look(now, limits)]


def _is_near(value: float | None, limit: float, limits: Thresholds) -> bool:
    """Is it over its limit, or not far enough below for an alert to end?"""
    return value is not None and value >= limit * limits.clear_share


def _figure(
    rule: str,
    subject: str,
    value: float,
    limit: float,
    title: str,
    *,
    node_id: str | None = None,
    severity: Severity = Severity.WARNING,
) -> Finding:
    return Finding(
        rule,
        subject,
        severity,
        line(title),
        round(value, 4),
        limit,
        node_id,
        is_over=value >= limit,
    )


def _mass_loss(now: ClusterSnapshot, limits: Thresholds) -> Iterator[Finding]:
    if now.is_mass_loss:
        title = "most nodes fell silent together: nothing is given to others"
        yield Finding("mass_loss", CLUSTER, Severity.CRITICAL, title)


def _node_lost(now: ClusterSnapshot, limits: Thresholds) -> Iterator[Finding]:
    is_any_left = any(r.node.state is NodeState.ONLINE for r in now.nodes)
    severity = Severity.ERROR if is_any_left else Severity.CRITICAL
    for reading in now.nodes:
        # One that has joined but never registered was never there.
        if reading.node.state is NodeState.LOST and reading.node.epoch:
            title = line(f"{reading.name} is lost: it does not answer")
            id_ = reading.node.id
            yield Finding("node_lost", id_, severity, title, node_id=id_)


def _percent(used: float, total: float) -> float | None:
    return 100 * used / total if total > 0 else None


def _of_nodes(
    rule: str,
    what: str,
    figure: Callable[[Sample], float | None],
    limit: str,
    severities: tuple[Severity, Severity] = (Severity.WARNING, Severity.CRITICAL),
) -> Look:
    """A share of each node; the second severity is for one that is nearly full."""

    def look(now: ClusterSnapshot, limits: Thresholds) -> Iterator[Finding]:
        most = getattr(limits, limit)
        for reading in now.present():
            value = figure(reading.sample) if reading.sample else None
            if value is None or not _is_near(value, most, limits):
                continue
            is_nearly_full = value >= (most + 100) / 2
            title = f"{reading.name}: {what} {value:.0f} % in use, limit {most:g} %"
            yield _figure(
                rule,
                reading.node.id,
                value,
                most,
                title,
                node_id=reading.node.id,
                severity=severities[is_nearly_full],
            )

    return look


def _cards(now: ClusterSnapshot) -> Iterator[tuple[NodeReading, Gpu]]:
    for reading in now.present():
        for gpu in reading.gpus or ():
            yield reading, gpu


def _name(reading: NodeReading, gpu: Gpu) -> str:
    return f"{reading.name}: GPU {gpu.index} ({gpu.name})"


def _gpu_temperature(now: ClusterSnapshot, limits: Thresholds) -> Iterator[Finding]:
    most = limits.temperature_c
    for reading, gpu in _cards(now):
        value = gpu.temperature_c
        if value is None or not _is_near(value, most, limits):
            continue
        is_hot = value >= most + _HOTTER_C
        yield _figure(
            "gpu_temperature",
            gpu.id,
            value,
            most,
            f"{_name(reading, gpu)} has {value:.0f} °C, limit {most:g} °C",
            node_id=reading.node.id,
            severity=Severity.CRITICAL if is_hot else Severity.WARNING,
        )


def _gpu_memory(now: ClusterSnapshot, limits: Thresholds) -> Iterator[Finding]:
    most = limits.gpu_memory_percent
    for reading, gpu in _cards(now):
        value = _percent(gpu.memory_used_mb or 0.0, gpu.memory_total_mb or 0.0)
        if value is None or not _is_near(value, most, limits):
            continue
        name = _name(reading, gpu)
        yield _figure(
            "gpu_memory",
            gpu.id,
            value,
            most,
            f"{name}: {value:.0f} % of its memory in use, limit {most:g} %",
            node_id=reading.node.id,
            severity=Severity.INFO,
        )


def _gpu_failed(now: ClusterSnapshot, limits: Thresholds) -> Iterator[Finding]:
    for reading, gpu in _cards(now):
        why = gpu.error
        if gpu.quarantine is not None:
            why = f"in quarantine, {gpu.quarantine.reason}"
        if why:
            title = line(f"{_name(reading, gpu)} cannot be used: {why}")
            id_ = reading.node.id
            yield Finding("gpu_failed", gpu.id, Severity.ERROR, title, node_id=id_)


def _queue_depth(now: ClusterSnapshot, limits: Thresholds) -> Iterator[Finding]:
    most = limits.queue_depth
    if _is_near(now.waiting, most, limits):
        title = f"{now.waiting} tasks wait, limit {most:g}"
        yield _figure("queue_depth", CLUSTER, now.waiting, most, title)


def _error_rate(now: ClusterSnapshot, limits: Thresholds) -> Iterator[Finding]:
    most, ended = limits.error_rate, now.ended
    share = ended.failed / max(1, ended.count)
    if ended.count < LEAST_ENDED:
        if not ended.is_full:
            title = "too few attempts have ended to tell how many fail"
            unknown = _figure("error_rate", CLUSTER, share, most, title)
            yield replace(unknown, severity=Severity.ERROR, value=None, is_over=False)
    elif _is_near(share, most, limits):
        title = f"{ended.failed} of {ended.count} attempts failed, "
        title += f"limit {100 * most:g} %"
        severity = Severity.ERROR
        yield _figure("error_rate", CLUSTER, share, most, title, severity=severity)


def _unserved(now: ClusterSnapshot, limits: Thresholds) -> Iterator[Finding]:
    for job_type, count in sorted(now.unserved.items()):
        title = line(f"no worker serves '{job_type}', for which {count} task(s) wait")
        yield Finding("unserved", job_type, Severity.ERROR, title, float(count))


def _breaker(now: ClusterSnapshot, limits: Thresholds) -> Iterator[Finding]:
    names = {r.node.id: r.name for r in now.nodes}
    for breaker in now.breakers:
        where = names.get(breaker.node_id, breaker.node_id)
        title = line(f"{where}: {breaker.key} is left alone, {breaker.reason}")
        subject = f"{breaker.node_id}/{breaker.key}"
        id_ = breaker.node_id
        yield Finding("breaker_open", subject, Severity.ERROR, title, node_id=id_)


def _clock_skew(now: ClusterSnapshot, limits: Thresholds) -> Iterator[Finding]:
    for reading in now.present():
        value, most = abs(reading.skew_s or 0.0), limits.skew_s
        if reading.skew_s is None or not _is_near(value, most, limits):
            continue
        word = "ahead" if reading.skew_s > 0 else "behind"
        title = f"the clock of {reading.name} is {value:.1f} s {word}, limit {most:g} s"
        id_ = reading.node.id
        yield _figure("clock_skew", id_, value, most, title, node_id=id_)


def _worker_error(now: ClusterSnapshot, limits: Thresholds) -> Iterator[Finding]:
    for worker in now.broken:
        why = worker.error or "it did not say why"
        title = line(f"worker {worker.spec.name} cannot work: {why}")
        yield Finding(
            "worker_error",
            worker.id,
            Severity.WARNING,
            title,
            node_id=worker.node_id,
        )


def _engine_down(now: ClusterSnapshot, limits: Thresholds) -> Iterator[Finding]:
    if not now.is_engine_up:
        title = "Redis does not answer: orders cannot be sent"
        yield Finding("engine_down", CLUSTER, Severity.CRITICAL, title)


def _audit_broken(now: ClusterSnapshot, limits: Thresholds) -> Iterator[Finding]:
    if now.audit_fault:
        title = line(f"the audit trail was changed: {now.audit_fault}")
        yield Finding("audit_broken", CLUSTER, Severity.CRITICAL, title)


def _store_down(now: ClusterSnapshot, limits: Thresholds) -> Iterator[Finding]:
    # Without the database no alert can be stored: who looks adds `STORE_DOWN`.
    return iter(())


STORE_DOWN = Finding(
    "store_down", CLUSTER, Severity.CRITICAL, "the database does not answer"
)

_INFO, _WARNING, _ERROR, _CRITICAL = Severity
RULES: tuple[Rule, ...] = (
    Rule(
        "store_down",
        "PostgreSQL does not answer",
        _CRITICAL,
        _store_down,
        is_at_once=True,
    ),
    Rule(
        "engine_down", "Redis does not answer", _CRITICAL, _engine_down, is_at_once=True
    ),
    Rule(
        "audit_broken",
        "rows of the audit trail were changed or removed",
        _CRITICAL,
        _audit_broken,
        is_at_once=True,
    ),
    Rule(
        "mass_loss",
        "most nodes fell silent together",
        _CRITICAL,
        _mass_loss,
        is_at_once=True,
    ),
    Rule(
        "node_lost",
        "a node does not answer; critical when none is left",
        _ERROR,
        _node_lost,
        worst=_CRITICAL,
        is_at_once=True,
    ),
    Rule(
        "node_cpu",
        "processor use of a node, in percent",
        _INFO,
        _of_nodes(
            "node_cpu",
            "processor",
            lambda s: s.cpu_percent,
            "cpu_percent",
            (Severity.INFO, Severity.INFO),
        ),
        is_told_by_node=True,
        limit="cpu_percent",
    ),
    Rule(
        "node_memory",
        "memory in use on a node, in percent",
        _WARNING,
        _of_nodes(
            "node_memory",
            "memory",
            lambda s: _percent(s.memory_used_mb, s.memory_total_mb),
            "memory_percent",
        ),
        worst=_CRITICAL,
        is_told_by_node=True,
        limit="memory_percent",
    ),
    Rule(
        "node_disk",
        "disk in use on a node, in percent",
        _WARNING,
        _of_nodes(
            "node_disk",
            "disk",
            lambda s: _percent(s.disk_used_gb, s.disk_total_gb),
            "disk_percent",
        ),
        worst=_CRITICAL,
        is_told_by_node=True,
        limit="disk_percent",
    ),
    Rule(
        "gpu_temperature",
        "temperature of a GPU, in °C",
        _WARNING,
        _gpu_temperature,
        worst=_CRITICAL,
        is_told_by_node=True,
        limit="temperature_c",
    ),
    Rule(
        "gpu_memory",
        "memory of a GPU in use, in percent",
        _INFO,
        _gpu_memory,
        is_told_by_node=True,
        limit="gpu_memory_percent",
    ),
    Rule(
        "gpu_failed",
        "a GPU cannot be read, or is in quarantine",
        _ERROR,
        _gpu_failed,
        is_at_once=True,
        is_told_by_node=True,
    ),
    Rule(
        "worker_error",
        "a worker cannot start or work",
        _WARNING,
        _worker_error,
        is_told_by_node=True,
    ),
    Rule(
        "breaker_open",
        "a circuit breaker is open",
        _ERROR,
        _breaker,
        is_at_once=True,
        is_told_by_node=True,
    ),
    Rule(
        "clock_skew",
        "difference of a node's clock, in seconds",
        _WARNING,
        _clock_skew,
        is_told_by_node=True,
        limit="skew_s",
    ),
    Rule("queue_depth", "tasks that wait", _WARNING, _queue_depth, limit="queue_depth"),
    Rule(
        "error_rate",
        f"share of attempts that failed in five minutes, of at least {LEAST_ENDED}",
        _ERROR,
        _error_rate,
        limit="error_rate",
    ),
    Rule("unserved", "tasks wait for a job type nobody serves", _ERROR, _unserved),
)
BY_NAME: Mapping[str, Rule] = {rule.name: rule for rule in RULES}
