"""What tasks usually need, learned from the latest, and what of that is scarce.

Nothing here knows nodes one by one or judges them; that is `worth`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping

from corral.scheduler.place.capacity import WHOLE, Card, Need
from corral.scheduler.place.node_worth import NodeWorth, size_on

_WINDOW = 4096
"""Needs that count as usual: the latest."""
_DRIFT = 0.15
"""The part of the needs that has to be another before it is worth learning anew."""
_MOST_NEEDS = 512

Supply = Mapping[tuple[Card, ...], int]
"""How many nodes there are with such cards."""
_Outline = tuple[int, int, int, int, int, frozenset[str], str]


class DemandProfile:
    """The latest needs, and what they make a node with some cards worth."""

    def __init__(self) -> None:
        self._latest: deque[Need] = deque(maxlen=_WINDOW)
        self._seen = 0
        self._learn_at = 1
        self._profile: dict[_Outline, float] = {}
        self._chances: dict[Need, float] = {}
        self._scarce: dict[Need, float] = {}

    def see(self, need: Need) -> bool:
        """True: what comes is no longer what was learned."""
        if not need.gpus:
            return False
        self._latest.append(need)
        self._seen += 1
        if self._seen < self._learn_at:
            return False
        self._learn_at = self._seen + min(3 * self._seen, _WINDOW)
        now, then = _profile(self._latest), self._profile
        moved = sum(abs(now.get(k, 0.0) - then.get(k, 0.0)) for k in {**now, **then})
        return moved > 2.0 * _DRIFT

    def learn(self, supply: Supply) -> None:
        """What is usual from now on; every node is worth something else then."""
        self._profile = _profile(self._latest)
        common = Counter(self._latest).most_common(_MOST_NEEDS)
        total = sum(count for _, count in common)
        self._chances = {need: count / total for need, count in common}
        self._scarce = {
            need: _scarcity(need, supply) for need in self._chances if need.is_picky
        }

    def node_worth(self, cards: tuple[Card, ...]) -> NodeWorth:
        return NodeWorth.of(cards, self._chances, self._scarce)


def _profile(needs: Collection[Need]) -> dict[_Outline, float]:
    """How usual needs of about the same size are."""
    outlines = Counter(
        (
            need.gpus,
            need.share // 50,
            need.gpu_mb // 1024,
            need.cpu_milli.bit_length(),
            need.memory_mb.bit_length(),
            need.kinds,
            need.vendor,
        )
        for need in needs
    )
    return {outline: count / len(needs) for outline, count in outlines.items()}


def _scarcity(need: Need, supply: Supply) -> float:
    """All cards over those it could use; of several, those it finds together."""
    usable = total = 0
    for cards, nodes in supply.items():
        sizes = Counter(cards)
        fit = sum(n for card, n in sizes.items() if size_on(need, card) <= WHOLE)
        total += nodes * len(cards)
        if fit >= need.gpus:
            usable += nodes * fit
    return total / usable if usable else 0.0
