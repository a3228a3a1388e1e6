"""What a node has for tasks that say what they need: told to the scheduler by beats."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from corral.core.nodes.gpu import Gpu
from corral.core.tasks.needs import WHOLE
from corral.manager.cluster.gpus import bound_ids
from corral.manager.cluster.state import Cluster, NodeLink
from corral.manager.tasks.cancel import stopped
from corral.scheduler.events import CardOffer, NodeOffers, NodeWithdrawn, TasksTaken
from corral.wire.agent import WorkerBeat

_STEP_MB = 256
"""Readings are rounded to this, up: small changes are no news."""


def note_offers(cluster: Cluster, link: NodeLink, beats: Sequence[WorkerBeat]) -> bool:
    """Tell the scheduler what a node has now; was any of it news?

    First of all what its tasks have of it: after a restart nobody else knows.
    """
    strangers: set[str] = set()
    is_news = False
    for beat in beats:
        worker = cluster.workers.get(beat.worker_id)
        if worker is not None and worker.lingering:
            is_news |= stopped(cluster, worker, worker.lingering - beat.held)
        strangers |= _take(cluster, link, beat)
    offers = _offers(cluster, link, strangers)
    if offers is None or offers == link.offers:
        return is_news
    link.offers = offers
    cluster.scheduler.apply(offers)
    return True


def withdraw_offers(cluster: Cluster, link: NodeLink) -> None:
    """It has left: what it has is nobody's, until it registers and tells again."""
    if link.offers is not None:
        link.offers = None
        cluster.scheduler.apply(NodeWithdrawn(link.node.id))


def _take(cluster: Cluster, node: NodeLink, beat: WorkerBeat) -> set[str]:
    """Count what the tasks of a worker have; cards of attempts that are not ours."""
    link = cluster.workers.get(beat.worker_id)
    held = dict(beat.held)
    strangers: set[str] = set()
    for task_id, cards in _told(beat.facts):
        task = cluster.tasks.get(task_id)
        is_ours = (
            link is not None
            and task is not None
            and task.attempt == held.get(task_id)
            and task.incarnation == link.worker.incarnation
        )
        if not is_ours or task is None:
            # Still running where it should not: it will have been stopped soon.
            strangers |= set(cards)
        elif not cluster.scheduler.counts(task_id):
            where = (node.node.id, cards)
            taken = TasksTaken(beat.worker_id, (cluster.waiting(task),), 0.0, *where)
            cluster.scheduler.apply(taken)
    return strangers


def _told(facts: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    told = facts.get("cards")
    for task_id, cards in told.items() if isinstance(told, dict) else ():
        if isinstance(cards, list):
            yield str(task_id), tuple(map(str, cards))


def _offers(
    cluster: Cluster, link: NodeLink, strangers: Iterable[str]
) -> NodeOffers | None:
    """None before the node has said what it is."""
    sample = link.sample
    if sample is None or link.gpus is None:
        return None
    workers = cluster.of_node(link.node.id)
    holders = {card: w.id for w in workers for card in bound_ids(w.facts)}
    without = set(strangers)
    return NodeOffers(
        link.node.id,
        sample.cpu_count * WHOLE,
        int(sample.memory_total_mb),
        tuple(
            _card(cluster, gpu, holders.get(gpu.id, ""), gpu.id not in without)
            for gpu in link.gpus
        ),
    )


def _card(cluster: Cluster, gpu: Gpu, holder: str, is_free: bool) -> CardOffer:
    total_mb, used_mb = gpu.memory_total_mb or 0.0, gpu.memory_used_mb or 0.0
    if gpu.memory_offered_mb:
        # The node's own share of it, of which what is in use was taken off.
        total_mb = min(total_mb, gpu.memory_offered_mb + used_mb)
    others_mb = _others_mb(gpu, used_mb, cluster.scheduler.leased_mb(gpu.id), holder)
    return CardOffer(
        gpu.id,
        gpu.name,
        gpu.vendor,
        int(total_mb),
        _STEP_MB * math.ceil(others_mb / _STEP_MB),
        holder,
        gpu.is_offered and is_free,
    )


def _others_mb(gpu: Gpu, used_mb: float, leased_mb: int, holder: str) -> float:
    """What is in use beyond what tasks were given.

    A worker's models on its own cards are not counted: they are dropped for tasks.
    """
    foreign = [p.memory_mb or 0.0 for p in gpu.processes if not p.is_ours]
    ours_mb = max(0.0, used_mb - sum(foreign))
    over_mb = 0.0 if holder else max(0.0, ours_mb - leased_mb)
    return sum(foreign) + over_mb
