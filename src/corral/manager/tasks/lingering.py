"""Attempts that were told to stop: their GPUs are nobody else's until they have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager

from corral.manager.cluster.state import Cluster, WorkerLink
from corral.scheduler.plan import CardsBack


@contextmanager
def stopping(cluster: Cluster, task_ids: Iterable[str]) -> Iterator[None]:
    """While these are settled: their workers are told only afterwards."""
    ids = set(task_ids)
    cluster.stopping |= ids
    try:
        yield
    finally:
        cluster.stopping -= ids


def stopped(cluster: Cluster, link: WorkerLink, keys: Set[tuple[str, int]]) -> bool:
    """These attempts are not with this worker any more; had any something to give?"""
    found = sorted(link.lingering & keys)
    for task_id, attempt in found:
        link.lingering.discard((task_id, attempt))
        cluster.scheduler.apply(CardsBack(task_id, attempt))
    return bool(found)
