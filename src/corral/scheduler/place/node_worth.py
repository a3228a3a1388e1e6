"""What a node is worth: the GPU there that usual needs can be expected to use.

Nothing here learns what is usual, that is `demand_profile`, or chooses, that is
`packing`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import getitem

from corral.scheduler.place.capacity import WHOLE, Card, FreeCapacity, Need

_STEP = 10
"""Thousandths of a card that are not told apart."""
_PATIENCE = 0.02
"""A rest of a card that one need in fifty fits is filled half of the time."""
_MOST_TOGETHER = 16

Chances = Mapping[Need, float]


@dataclass(frozen=True, slots=True)
class _Demand:
    """What usual needs take of something for each GPU: a mean and how far it strays."""

    mean: float
    spread: float

    def stranded(self, gpus: float, left: int) -> float:
        """GPUs that can be expected to stay idle because this runs out first.

        What fills `gpus` takes about `mean * gpus`, and by chance more or less.
        """
        missing = self.mean * gpus - left
        deviation = self.spread * math.sqrt(gpus)
        if missing <= -4.0 * deviation:
            return 0.0
        if missing < 4.0 * deviation:
            z = missing / deviation
            tail = 0.5 * math.erfc(-z * math.sqrt(0.5))
            density = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
            missing = deviation * (z * tail + density)
        return missing / self.mean


@dataclass(frozen=True, slots=True)
class _Several:
    """Needs that take so many cards at once.

    Their weight is how usual they are, times how scarce what they could use is.
    """

    weight: float
    gpus: int
    cpu_milli: float
    memory_mb: float


@dataclass(frozen=True, slots=True)
class _Together:
    """Needs that take several cards at once, and the same of each."""

    sizes: tuple[int, ...]
    """Thousandths, by card; more than there are where a card will not do."""
    kinds: tuple[_Several, ...]

    def use(self, left: FreeCapacity, rests: Sequence[int]) -> float:
        """Thousandths of GPU they could use, each by its weight."""
        fit = [
            rest for rest, size in zip(rests, self.sizes, strict=True) if rest >= size
        ]
        count, used = len(fit), 0.0
        for kind in self.kinds:
            if (
                count >= kind.gpus
                and left.cpu_milli >= kind.cpu_milli
                and left.memory_mb >= kind.memory_mb
            ):
                used += kind.weight
        return used * sum(fit)


@dataclass(frozen=True, slots=True)
class NodeWorth:
    """What usual needs make of a node with these cards."""

    tables: tuple[tuple[float, ...], ...]
    """By card: what a rest of so many thousandths is worth."""
    limits_mb: tuple[int, ...]
    """By card: its memory; empty where no card's is known."""
    demands: tuple[_Demand, _Demand]
    """Of CPU and of memory."""
    together: tuple[_Together, ...]

    @classmethod
    def of(cls, cards: tuple[Card, ...], usual: Chances, scarce: Chances) -> NodeWorth:
        """From how usual needs are, and how scarce what they can use is."""
        fitting = {
            need: chance
            for need, chance in usual.items()
            if any(size_on(need, card) <= WHOLE for card in cards)
        }
        tables = {card: _table(card, fitting, scarce) for card in set(cards)}
        limits_mb = tuple(card.memory_mb for card in cards)
        return cls(
            tables=tuple(tables[card] for card in cards),
            limits_mb=limits_mb if any(limits_mb) else (),
            demands=_demands(cards, fitting),
            together=_together(cards, fitting, scarce),
        )

    def worth(self, left: FreeCapacity, rests: Sequence[int]) -> float:
        """Thousandths of GPU there that can be expected to be used."""
        gpus = sum(rests) / WHOLE
        if not gpus:
            return 0.0
        worth = sum(map(getitem, self.tables, rests))
        for kinds in self.together:
            worth += kinds.use(left, rests)
        cpu, memory = self.demands
        stranded = cpu.stranded(gpus, left.cpu_milli)
        stranded += memory.stranded(gpus, left.memory_mb)
        return worth - WHOLE * stranded

    def rests(self, left: FreeCapacity) -> Sequence[int]:
        """What is left of each card: of its time or its memory, whichever is less."""
        shares = left.shares
        if self.limits_mb:
            each = zip(shares, left.card_mb, self.limits_mb, strict=True)
            shares = tuple(
                min(share, WHOLE * mb // limit) if limit else share
                for share, mb, limit in each
            )
        if shares and min(shares) < 0:
            return [max(0, share) for share in shares]
        return shares


def size_on(need: Need, card: Card) -> int:
    """Thousandths of such a card, by time or memory; more than a card: it won't do."""
    if not card.suits(need) or need.gpu_mb > card.memory_mb:
        return WHOLE + 1
    if not need.gpu_mb:
        return need.share
    return max(need.share, math.ceil(WHOLE * need.gpu_mb / card.memory_mb))


def _table(card: Card, usual: Chances, scarce: Chances) -> tuple[float, ...]:
    """What usual needs, as they come, will still put on so much of a card.

    What only few cards can do makes those worth more, up to twice as much.
    """
    sizes: dict[int, float] = {}
    extra = [0.0] * (WHOLE // _STEP + 1)
    for need, chance in usual.items():
        size = size_on(need, card)
        if size > WHOLE:
            continue
        steps = max(1, math.ceil(size / _STEP))
        sizes[steps] = sizes.get(steps, 0.0) + chance
        if need.gpus == 1 and need.is_picky:
            extra[steps] += chance * max(0.0, scarce[need] - 1.0)
    table = [0.0]
    for rest in range(1, WHOLE // _STEP + 1):
        chance = filled = 0.0
        for size, each in sizes.items():
            if size <= rest:
                chance += each
                filled += each * (size * _STEP + table[rest - size])
        # Filled in the mean, times how surely anything that fits comes at all.
        table.append(filled / (chance + _PATIENCE))
    for rest, weight in enumerate(accumulate(extra)):
        table[rest] += rest * _STEP * min(1.0, weight)
    return tuple(table[rest // _STEP] for rest in range(WHOLE + 1))


def _demands(cards: tuple[Card, ...], usual: Chances) -> tuple[_Demand, _Demand]:
    parts = []
    for need, chance in usual.items():
        size = min(size_on(need, card) for card in set(cards))
        gpus = need.gpus * max(_STEP, size) / WHOLE
        parts.append((chance, gpus, need.cpu_milli, need.memory_mb))
    return (
        _demand([(chance, gpus, cpu) for chance, gpus, cpu, _ in parts]),
        _demand([(chance, gpus, memory) for chance, gpus, _, memory in parts]),
    )


def _demand(parts: Sequence[tuple[float, float, int]]) -> _Demand:
    gpus = sum(chance * gpu for chance, gpu, _ in parts) or 1.0
    mean = max(1.0, sum(chance * taken for chance, _, taken in parts) / gpus)
    square = sum(chance * (taken - mean * gpu) ** 2 for chance, gpu, taken in parts)
    return _Demand(mean, math.sqrt(square / gpus))


def _together(
    cards: tuple[Card, ...], usual: Chances, scarce: Chances
) -> tuple[_Together, ...]:
    alike: dict[tuple[int, ...], dict[int, list[Need]]] = {}
    for need in usual:
        sizes = tuple(size_on(need, card) for card in cards) if need.gpus > 1 else ()
        if sizes and sum(size <= WHOLE for size in sizes) >= need.gpus:
            alike.setdefault(sizes, {}).setdefault(need.gpus, []).append(need)
    found = [
        _Together(sizes, tuple(_several(by[gpus], usual, scarce) for gpus in by))
        for sizes, by in alike.items()
    ]
    found.sort(key=lambda those: -sum(kind.weight for kind in those.kinds))
    return tuple(found[:_MOST_TOGETHER])


def _several(needs: Sequence[Need], usual: Chances, scarce: Chances) -> _Several:
    chance = sum(usual[need] for need in needs)
    return _Several(
        weight=sum(usual[need] * scarce[need] for need in needs),
        gpus=needs[0].gpus,
        cpu_milli=sum(usual[need] * need.cpu_milli for need in needs) / chance,
        memory_mb=sum(usual[need] * need.memory_mb for need in needs) / chance,
    )
