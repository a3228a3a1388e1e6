"""The product's placement behind the packing simulator's policy interface."""

from __future__ import annotations

from typing import Any

from corral.scheduler.place.capacity import CapacityOffer, Card, Need, NodeCapacity
from corral.scheduler.place.packing import Packing

_KEPT: dict[int, Packing] = {}


def choose(cluster: Any, spec: Any, candidates: Any, rng: Any) -> tuple[int, list[int]]:
    """Node and devices for a pod; one `Packing` a cluster."""
    packing = _KEPT.get(id(cluster))
    if packing is None:
        _KEPT.clear()
        packing = _KEPT[id(cluster)] = _of(cluster)
    cpu, memory, share, gpus, kinds = spec
    need = Need(cpu, memory, share, gpus, kinds=frozenset(kinds))
    packing.expect(need)
    fit = packing.choose(need)
    assert fit is not None
    packing.place(fit.node, fit.cards, need)
    return int(fit.node.name), list(fit.cards)


def _of(cluster: Any) -> Packing:
    packing = Packing()
    for index in range(cluster.n):
        card = Card(cluster.models[cluster.model[index]])
        count = int((cluster.gpu[index] >= 0).sum())
        cpu, memory = int(cluster.cpu[index]), int(cluster.mem[index])
        packing.add(
            NodeCapacity.of(str(index), CapacityOffer(cpu, memory, (card,) * count))
        )
    return packing
