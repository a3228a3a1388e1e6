"""Where a task with needs of its own fits best: where the least worth is lost.

A kind of need keeps the states of nodes it fits in as a heap, so that a decision looks
only at what has changed since the last one like it. Pure: the caller tells of nodes,
needs, places and releases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from corral.scheduler.place.capacity import (
    WHOLE,
    CapacityOffer,
    FreeCapacity,
    Need,
    NodeCapacity,
    Shortage,
)
from corral.scheduler.place.demand_profile import DemandProfile
from corral.scheduler.place.node_classes import CardLayout, NodeClass, NodeClasses

_TIE = 10.0
"""Thousandths of GPU that a card, a node's GPUs or its CPU left over count for."""
_LARGE_CPU = 128 * WHOLE
_LARGE_GPU = 8 * WHOLE
_NEWS = 0.25
"""A fleet that has changed by this share makes other things scarce."""
_MOST_CANDIDATES = 400_000
_LEAST_ROWS = 64


@dataclass(frozen=True, slots=True)
class Fit:
    """A place for a need, and what it would cost: thousandths of GPU of worth."""

    node: NodeCapacity
    cards: tuple[int, ...]
    cost: float


_Entry = tuple[float, int, tuple[int, ...], NodeClass]


@dataclass(slots=True)
class _Row:
    """Where one kind of need fits, best first; states that came later are not in yet.

    Those that no node is in any more are dropped when they come up.
    """

    seen: int = 0
    heap: list[_Entry] = field(default_factory=list)


class Packing:
    """Deterministic: the same calls give the same choices."""

    def __init__(
        self, least_rows: int = _LEAST_ROWS, most_candidates: int = _MOST_CANDIDATES
    ) -> None:
        """How many kinds of need are remembered: `least_rows`, and more for as long
        as all of them together have no more than `most_candidates`.
        """
        self._least_rows = least_rows
        self._most_candidates = most_candidates
        self._profile = DemandProfile()
        self._classes = NodeClasses()
        self._rows: dict[Need, _Row] = {}
        self._learned_cards = 0

    def add(self, room: NodeCapacity) -> None:
        if room in self._classes:
            raise ValueError(f"{room.name} is there already")
        self._classes.add(room)

    def remove(self, room: NodeCapacity) -> None:
        """It is gone; what is placed there may still be released."""
        if room in self._classes:
            self._classes.remove(room)

    def change(self, room: NodeCapacity, offer: CapacityOffer) -> None:
        """It offers something else now; what is placed there stays.

        Each change is looked at by every kind of need, so that readings should be
        rounded, and small changes left out.

        Raises:
            ValueError: there are fewer cards, or the node is not here.
        """
        if room not in self._classes:
            raise ValueError(f"{room.name} is not here")
        if offer != room.offer:
            room.change(offer)
            self._classes.remade(room)

    def rooms(self) -> Iterator[NodeCapacity]:
        """In the order they were added."""
        return self._classes.rooms()

    def expect(self, need: Need) -> None:
        """A task with this need came; once for each, so that the usual is known."""
        change = abs(self._classes.cards - self._learned_cards)
        if self._profile.see(need) or change > _NEWS * self._learned_cards:
            self._profile.learn(self._classes.supply())
            self._learned_cards = self._classes.cards
            self._classes.judge_anew()
            self._rows.clear()

    def choose(
        self, need: Need, allowed: Callable[[NodeCapacity], bool] | None = None
    ) -> Fit | None:
        """The best place for this need; None where it fits nowhere (that is allowed).

        Of equal ones that whose state came first, and in it the node added first.
        """
        if allowed is not None:
            found = self.best(need, 1, allowed)
            return found[0] if found else None
        heap = self._row(need).heap
        while heap and not heap[0][3].count:
            heappop(heap)
        if not heap:
            return None
        cost, _, cards, state = heap[0]
        return Fit(self._classes.first_in(state), cards, cost)

    def best(
        self,
        need: Need,
        most: int,
        allowed: Callable[[NodeCapacity], bool] | None = None,
    ) -> list[Fit]:
        """The best places for this need, best first."""
        heap = self._row(need).heap
        found: list[Fit] = []
        taken: list[_Entry] = []
        while heap and len(found) < most:
            entry = heappop(heap)
            cost, _, cards, state = entry
            if not state.count:
                continue
            taken.append(entry)
            for room in self._classes.rooms_in(state):
                if allowed is None or allowed(room):
                    found.append(Fit(room, cards, cost))
                if len(found) == most:
                    break
        for entry in taken:
            heappush(heap, entry)
        return found

    def place(self, room: NodeCapacity, cards: Sequence[int], need: Need) -> None:
        """Take it; never more than there is.

        Raises:
            ValueError: it does not fit there.
        """
        if room not in self._classes or not room.holds(need, cards):
            raise ValueError(f"{need} does not fit on {room.name}")
        self.shift(room, cards, need)

    def release(self, room: NodeCapacity, cards: Sequence[int], need: Need) -> None:
        """Give back what was placed."""
        self.shift(room, cards, need, times=-1)

    def shift(
        self, room: NodeCapacity, cards: Sequence[int], need: Need, times: int = 1
    ) -> None:
        """Count what is there, or with `times=-1` no more, whether it fits or not."""
        room.left = room.left.after(need, cards, times)
        if room in self._classes:
            self._classes.moved(room)

    def on(self, room: NodeCapacity, need: Need) -> tuple[int, ...] | None:
        """The best cards of one node for this need; None where it does not fit."""
        if room.short(need) is not None:
            return None
        found = self._entry(self._classes.at(room), need)
        return None if found is None else found[2]

    def shorts(self, need: Need) -> Iterator[tuple[NodeCapacity, Shortage | None]]:
        """For each node what is missing there first; None where it would fit."""
        return ((room, room.short(need)) for room in self._classes.rooms())

    def _row(self, need: Need) -> _Row:
        row = self._rows.pop(need, None) or _Row()
        self._rows[need] = row
        most = self._most_candidates // (len(self._classes) + 1)
        if len(self._rows) > max(self._least_rows, most):
            del self._rows[next(iter(self._rows))]
        if row.seen < self._classes.latest:
            self._merge(row, self._news(need, row.seen))
            row.seen = self._classes.latest
        return row

    def _news(self, need: Need, seen: int) -> list[_Entry]:
        """Where it fits of the states that came since; most nodes are full."""
        cpu_milli, memory_mb, share = need.cpu_milli, need.memory_mb, need.share
        found = []
        for state in self._classes.since(seen):
            if state.most < share:
                continue
            left = state.left
            if left.cpu_milli < cpu_milli or left.memory_mb < memory_mb:
                continue
            if (entry := self._entry(state, need)) is not None:
                found.append(entry)
        return found

    def _merge(self, row: _Row, found: list[_Entry]) -> None:
        if len(found) < len(row.heap) <= 2 * len(self._classes) + 64:
            for entry in found:
                heappush(row.heap, entry)
        elif found:
            row.heap = [entry for entry in row.heap if entry[3].count] + found
            heapify(row.heap)

    def _entry(self, state: NodeClass, need: Need) -> _Entry | None:
        left, layout = state.left, state.layout
        ways = _ways(layout, left, need) if need.gpus else [()]
        if not ways:
            return None
        node_worth = layout.node_worth
        if node_worth is None:
            node_worth = layout.node_worth = self._profile.node_worth(layout.cards)
        if state.worth is None:
            state.worth = node_worth.worth(left, node_worth.rests(left))
        found = []
        for way in ways:
            after = left.after(need, way)
            rests = node_worth.rests(after)
            lost = state.worth - node_worth.worth(after, rests)
            found.append((lost + _TIE * _over(after.cpu_milli, rests, way), way))
        cost, cards = min(found)
        return cost, state.number, cards, state


def _over(cpu_milli: int, rests: Sequence[int], cards: tuple[int, ...]) -> float:
    """What is left over on the node and on the card, each as a part of a large one."""
    over = cpu_milli / _LARGE_CPU + sum(rests) / _LARGE_GPU
    return over + rests[cards[0]] / WHOLE if cards else over


def _ways(layout: CardLayout, left: FreeCapacity, need: Need) -> list[tuple[int, ...]]:
    """Which cards could be taken, one choice of each kind; of several the tightest."""
    share, gpu_mb = need.share, need.gpu_mb
    shares, card_mb = left.shares, left.card_mb
    fit = [at for at, free in enumerate(shares) if free >= share]
    if need.is_picky or min(card_mb, default=0) < 0:
        cards = layout.cards
        fit = [at for at in fit if card_mb[at] >= gpu_mb and cards[at].suits(need)]
    if len(fit) < need.gpus:
        return []
    if need.gpus > 1:
        fit.sort(key=lambda at: (shares[at], card_mb[at], at))
        return [tuple(fit[: need.gpus])]
    types = layout.types
    firsts: dict[tuple[int, int, int], tuple[int, ...]] = {}
    for at in fit:
        firsts.setdefault((shares[at], card_mb[at], types[at]), (at,))
    return list(firsts.values())
