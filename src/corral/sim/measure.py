"""The figures of a run: how long tasks took, how often models were loaded."""

from __future__ import annotations

from collections.abc import Sequence

from corral.sim.machine import Machine
from corral.sim.simulation import Record
from corral.wire.insight import SimulatedFigures

SLO = 5.0
"""A task is in time when it ends within so many times its own run."""
POINTS = 200


class Figures(SimulatedFigures, frozen=True, kw_only=True):
    """`doubled` counts attempts that ran beside another of the same task."""

    doubled: int


def figures(record: Record) -> Figures:
    """Measure one run."""
    arrivals = record.workload.arrivals
    took = record.ended_s
    all_s = sorted(took.values())
    high_s = sorted(
        took[a.task.task_id]
        for a in arrivals
        if a.task.priority > 0 and a.task.task_id in took
    )
    in_time = sum(
        took.get(a.task.task_id, float("inf")) <= SLO * a.run_s for a in arrivals
    )
    up_s = _up_s(record.machines, record.over_at)
    return Figures(
        tasks=len(arrivals),
        left=record.left,
        expired=len(record.expired),
        doubled=record.doubled,
        redone=record.redone,
        mean_s=sum(all_s) / len(all_s) if all_s else 0.0,
        p50_s=quantile(all_s, 0.5) or 0.0,
        p99_s=quantile(all_s, 0.99) or 0.0,
        p99_high_s=quantile(high_s, 0.99),
        slo_pct=100.0 * in_time / len(arrivals),
        loads=record.loads,
        load_hours=record.loading_s / 3600.0,
        utilization_pct=100.0 * record.busy_s / up_s if up_s else 0.0,
        span_hours=record.over_at / 3600.0,
    )


def quantile(ordered: Sequence[float], share: float) -> float | None:
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def curve(record: Record) -> list[tuple[float, float]]:
    """Seconds, and the percentage of tasks that took no longer."""
    ordered = sorted(record.ended_s.values())
    if not ordered:
        return []
    shares = [n / POINTS for n in range(1, POINTS + 1)]
    return [(ordered[max(0, int(s * len(ordered)) - 1)], 100.0 * s) for s in shares]


def _up_s(machines: Sequence[Machine], over_at: float) -> float:
    """Slot-seconds there were."""
    total = 0.0
    for machine in machines:
        down_s = sum(max(0.0, min(up, over_at) - down) for down, up in machine.outages)
        total += machine.slots * max(0.0, over_at - down_s)
    return total
