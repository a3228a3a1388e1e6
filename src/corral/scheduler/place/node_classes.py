"""Nodes by the state they are in: those alike in everything are one candidate.

Most nodes of a fleet are either empty or full, so there are far fewer states worth
looking at than nodes. Nothing here judges or chooses; that is `packing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from corral.scheduler.place.capacity import Card, FreeCapacity, NodeCapacity
from corral.scheduler.place.demand_profile import Supply
from corral.scheduler.place.node_worth import NodeWorth


@dataclass(slots=True, eq=False)
class CardLayout:
    """Nodes with the same cards; `types` tells which of these are alike."""

    number: int
    cards: tuple[Card, ...]
    types: tuple[int, ...]
    nodes: int = 0
    node_worth: NodeWorth | None = None


@dataclass(slots=True, eq=False)
class NodeClass:
    """Nodes of one layout with the same left of everything."""

    number: int
    layout: CardLayout
    left: FreeCapacity
    most: int
    """The largest rest of a card, in thousandths."""
    worth: float | None = None
    count: int = 0
    members: list[tuple[int, NodeCapacity]] = field(default_factory=list)
    """A heap by order of adding; those that went since are still in it."""


class NodeClasses:
    """Which node is in which state; a state is there while a node is in it."""

    def __init__(self) -> None:
        self.latest = 0
        """The highest number given so far; a later state has a higher one."""
        self.cards = 0
        self._order: dict[NodeCapacity, int] = {}
        self._at: dict[NodeCapacity, NodeClass] = {}
        self._layouts: dict[tuple[Card, ...], CardLayout] = {}
        self._classes: dict[tuple[int, FreeCapacity], NodeClass] = {}

    def __contains__(self, room: NodeCapacity) -> bool:
        return room in self._order

    def __len__(self) -> int:
        return len(self._classes)

    def rooms(self) -> Iterator[NodeCapacity]:
        return iter(self._order)

    def at(self, room: NodeCapacity) -> NodeClass:
        return self._at[room]

    def add(self, room: NodeCapacity) -> None:
        self._order[room] = self._next()
        self._enter(room, self._layout_of(room.offer.cards))

    def remove(self, room: NodeCapacity) -> None:
        del self._order[room]
        self._forget(self._leave(room))

    def moved(self, room: NodeCapacity) -> None:
        """It has more or less left than before."""
        layout = self._leave(room)
        self._enter(room, layout)

    def remade(self, room: NodeCapacity) -> None:
        """It may have other cards than before."""
        old = self._leave(room)
        self._enter(room, self._layout_of(room.offer.cards))
        self._forget(old)

    def since(self, number: int) -> Iterator[NodeClass]:
        """The states that came after the one of this number, latest first."""
        for state in reversed(self._classes.values()):
            if state.number <= number:
                return
            yield state

    def supply(self) -> Supply:
        return {layout.cards: layout.nodes for layout in self._layouts.values()}

    def judge_anew(self) -> None:
        for layout in self._layouts.values():
            layout.node_worth = None
        for state in self._classes.values():
            state.worth = None

    def first_in(self, state: NodeClass) -> NodeCapacity:
        """The node in it that was added first."""
        is_in = self._is_in(state)
        while not is_in(state.members[0]):
            heappop(state.members)
        return state.members[0][1]

    def rooms_in(self, state: NodeClass) -> Iterator[NodeCapacity]:
        """In the order they were added."""
        first = self.first_in(state)
        yield first
        if state.count > 1:
            for _, room in sorted(filter(self._is_in(state), set(state.members))):
                if room is not first:
                    yield room

    def _next(self) -> int:
        self.latest += 1
        return self.latest

    def _layout_of(self, cards: tuple[Card, ...]) -> CardLayout:
        layout = self._layouts.get(cards)
        if layout is None:
            types = tuple(cards.index(card) for card in cards)
            layout = self._layouts[cards] = CardLayout(self._next(), cards, types)
        return layout

    def _forget(self, layout: CardLayout) -> None:
        if not layout.nodes:
            del self._layouts[layout.cards]

    def _leave(self, room: NodeCapacity) -> CardLayout:
        state = self._at.pop(room)
        layout = state.layout
        layout.nodes -= 1
        self.cards -= len(layout.cards)
        state.count -= 1
        if not state.count:
            del self._classes[layout.number, state.left]
        return layout

    def _enter(self, room: NodeCapacity, layout: CardLayout) -> None:
        key = (layout.number, room.left)
        state = self._classes.get(key)
        if state is None:
            most = max(room.left.shares, default=0)
            state = self._classes[key] = NodeClass(
                self._next(), layout, room.left, most
            )
        state.count += 1
        layout.nodes += 1
        self.cards += len(layout.cards)
        self._at[room] = state
        if len(state.members) > 2 * state.count + 8:
            state.members = sorted(filter(self._is_in(state), set(state.members)))
        heappush(state.members, (self._order[room], room))

    def _is_in(self, state: NodeClass) -> Callable[[tuple[int, NodeCapacity]], bool]:
        def is_in(member: tuple[int, NodeCapacity]) -> bool:
            order, room = member
            return self._at.get(room) is state and self._order[room] == order

        return is_in
