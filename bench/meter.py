"""Who used the processor, and for how long: meters processes by kind.

It only reads; it starts and stops nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import psutil

Kinds = Mapping[str, Iterable[psutil.Process]]
"""Processes to meter, under the word that the table has for them."""


class BenchError(Exception):
    """Something did not work, so there is nothing to measure."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What some work took: seconds on the clock, processor seconds by kind.

    `foreign` is the share of the whole machine that others had meanwhile: wall clock
    figures of a run with a high one are too low.
    """

    wall_s: float
    cpu_s: Mapping[str, float]
    foreign: float

    @property
    def total_cpu_s(self) -> float:
        return sum(self.cpu_s.values())

    def per_task_ms(self, tasks: int) -> dict[str, float]:
        return {kind: s * 1000.0 / tasks for kind, s in self.cpu_s.items()}


def measure(work: Callable[[], object], find: Callable[[], Kinds]) -> Usage:
    """Do `work` in this process, the `client`, and meter it and those it `find`s."""
    before, machine_before = _read(find()), _machine_s()
    client_before, begun = time.process_time(), time.perf_counter()
    work()
    wall_s = time.perf_counter() - begun
    client_s = time.process_time() - client_before
    after, machine_s = _read(find()), _machine_s() - machine_before
    used = {kind: max(after[kind] - before.get(kind, 0.0), 0.0) for kind in after}
    used["client"] = client_s
    room_s = wall_s * (psutil.cpu_count() or 1)
    return Usage(wall_s, used, max(machine_s - sum(used.values()), 0.0) / room_s)


def family(pid: int) -> list[psutil.Process]:
    """A process and all its descendants."""
    try:
        head = psutil.Process(pid)
        return [head, *head.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _read(kinds: Kinds) -> dict[str, float]:
    return {kind: sum(map(_cpu_s, members)) for kind, members in kinds.items()}


def _cpu_s(process: psutil.Process) -> float:
    """Its own time and that of children it has buried; living ones are listed too."""
    try:
        return float(sum(process.cpu_times()[:4]))
    except psutil.NoSuchProcess:
        return 0.0


def _machine_s() -> float:
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0) + getattr(times, "steal", 0.0)
    # Linux counts guests within user time.
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - guests - idle)
