"""What nodes have for tasks that say what they need, and what was given of it.

A task with needs takes them in the step that gives it to a worker, and nobody else gets
them before it is no longer there. Cards that a worker has for itself are its tasks'
alone; the others of a node are for whoever asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from corral.core.tasks.needs import Need
from corral.scheduler.events import CardOffer, NodeOffers
from corral.scheduler.place.capacity import CapacityOffer, Card, NodeCapacity, Shortage
from corral.scheduler.place.packing import Packing


@dataclass(frozen=True, slots=True)
class Lease:
    """What one task was given: cards of the node's, or of its worker's own."""

    worker_id: str
    node_id: str
    need: Need
    cards: tuple[str, ...]
    """Their ids."""
    at: tuple[int, ...]
    is_own: bool


@dataclass(slots=True, eq=False)
class NodeLeases:
    """A node: what it has for all, and the cards that workers have for themselves."""

    capacity: NodeCapacity
    offers: NodeOffers
    """What it last told that it has."""
    ids: list[str] = field(default_factory=list)
    own: dict[str, NodeCapacity] = field(default_factory=dict)
    own_ids: dict[str, tuple[str, ...]] = field(default_factory=dict)


class Leases:
    def __init__(self) -> None:
        self.packing = Packing()
        self.by_task: dict[str, Lease] = {}
        self._nodes: dict[str, NodeLeases] = {}
        self._unplaced: dict[str, Lease] = {}
        """Of tasks that were there before their node told what it has."""

    # what there is ---------------------------------------------------------------
    def offer(self, event: NodeOffers) -> bool:
        """Take note of what a node has now; is any of it new?"""
        node = self._nodes.get(event.node_id)
        if node is None:
            room = NodeCapacity.of(event.node_id, CapacityOffer(0, 0))
            node = self._nodes[event.node_id] = NodeLeases(room, event)
            self.packing.add(room)
        node.offers = event
        before = (node.capacity.offer, {w: r.offer for w, r in node.own.items()})
        told = {card.card_id: card for card in event.cards}
        node.ids += [card_id for card_id in told if card_id not in node.ids]
        cards = [told.get(card_id, CardOffer(card_id)) for card_id in node.ids]
        is_known = [card_id in told for card_id in node.ids]
        free = [
            known and card.is_offered and not card.holder
            for card, known in zip(cards, is_known, strict=True)
        ]
        offer = CapacityOffer(
            event.cpu_milli,
            event.memory_mb,
            tuple(map(_card, cards, free)),
            tuple(c.foreign_mb if ok else 0 for c, ok in zip(cards, free, strict=True)),
        )
        self.packing.change(node.capacity, offer)
        self._set_own(node, event.cards)
        self._settle(event.node_id)
        return before != (
            node.capacity.offer,
            {w: r.offer for w, r in node.own.items()},
        )

    def _set_own(self, node: NodeLeases, cards: Sequence[CardOffer]) -> None:
        held: dict[str, list[CardOffer]] = {}
        for card in cards:
            if card.holder:
                held.setdefault(card.holder, []).append(card)
        for gone in sorted(node.own.keys() - held.keys()):
            self._lift(gone)
            del node.own[gone], node.own_ids[gone]
        for worker_id, some in held.items():
            ids = tuple(card.card_id for card in some)
            offer = CapacityOffer(
                0,
                0,
                tuple(_card(card, card.is_offered) for card in some),
                tuple(card.foreign_mb for card in some),
            )
            if node.own_ids.get(worker_id) == ids:
                node.own[worker_id].change(offer)
            else:
                self._lift(worker_id)
                node.own[worker_id] = NodeCapacity.of(worker_id, offer)
                node.own_ids[worker_id] = ids

    def withdraw(self, node_id: str) -> None:
        """Nothing is known of what this node has, until it tells again."""
        node = self._nodes.get(node_id)
        if node is not None:
            for task_id, _ in list(self.on(node_id)):
                self._unplaced[task_id] = self.by_task.pop(task_id)
            self.packing.remove(node.capacity)
            del self._nodes[node_id]

    def _lift(self, worker_id: str) -> None:
        """Its cards are others now: what its tasks have of them is counted anew."""
        for task_id, lease in list(self.by_task.items()):
            if lease.is_own and lease.worker_id == worker_id:
                self._put(self._nodes[lease.node_id], lease, times=-1)
                self._unplaced[task_id] = self.by_task.pop(task_id)

    # what fits -------------------------------------------------------------------
    def node(self, node_id: str) -> NodeLeases | None:
        return self._nodes.get(node_id)

    def find(self, worker_id: str, node_id: str, need: Need) -> tuple[int, ...] | None:
        """The cards a task would get there; None where it does not fit now."""
        node = self._nodes.get(node_id)
        if node is None:
            return None
        own = node.own.get(worker_id)
        if own is None or not need.gpus:
            return self.packing.on(node.capacity, need)
        if node.capacity.short(need.of_host) is not None:
            return None
        return _tightest(own, need.of_cards)

    def short(
        self,
        worker_id: str,
        node_id: str,
        need: Need,
        *,
        is_empty: bool = False,
        of_others: bool = False,
    ) -> Shortage | None:
        """What is missing there first; with `is_empty` if nothing were given out,
        with `of_others` if no other process used anything, either.

        Raises:
            LookupError: nothing is known of that node.
        """
        node = self._nodes[node_id]
        room, own = node.capacity, node.own.get(worker_id)
        if is_empty:
            room = room.emptied(of_others=of_others)
            own = own.emptied(of_others=of_others) if own is not None else None
        if own is None or not need.gpus:
            return room.short(need)
        return room.short(need.of_host) or own.short(need.of_cards)

    def could(self, worker_id: str, node_id: str, need: Need) -> bool:
        """Would it fit there if nothing were given out?"""
        if node_id not in self._nodes:
            return False
        return self.short(worker_id, node_id, need, is_empty=True) is None

    # what is given ---------------------------------------------------------------
    def take(
        self, task_id: str, worker_id: str, node_id: str, need: Need
    ) -> tuple[str, ...]:
        """Give a task what it needs; the ids of its cards.

        Raises:
            ValueError: it does not fit there.
        """
        at = self.find(worker_id, node_id, need)
        if at is None:
            raise ValueError(f"{need} does not fit on {node_id}")
        node = self._nodes[node_id]
        is_own = worker_id in node.own and bool(need.gpus)
        ids = node.own_ids[worker_id] if is_own else node.ids
        cards = tuple(ids[card] for card in at)
        lease = Lease(worker_id, node_id, need, cards, at, is_own)
        self._put(node, lease)
        self.by_task[task_id] = lease
        return cards

    def note(
        self,
        task_id: str,
        worker_id: str,
        node_id: str,
        need: Need,
        cards: tuple[str, ...],
    ) -> None:
        """A task is there already, with these cards, by other means than a plan."""
        if task_id in self.by_task or task_id in self._unplaced:
            return
        self._unplaced[task_id] = Lease(worker_id, node_id, need, cards, (), False)
        self._settle(node_id)

    def _settle(self, node_id: str) -> None:
        """Count what was there before its node told what it has."""
        node = self._nodes.get(node_id)
        if node is None:
            return
        for task_id, lease in list(self._unplaced.items()):
            if lease.node_id != node_id:
                continue
            is_own = lease.worker_id in node.own and bool(lease.need.gpus)
            ids = list(node.own_ids[lease.worker_id]) if is_own else node.ids
            if any(card not in ids for card in lease.cards):
                continue
            at = tuple(ids.index(card) for card in lease.cards)
            placed = Lease(
                lease.worker_id, node_id, lease.need, lease.cards, at, is_own
            )
            del self._unplaced[task_id]
            self.by_task[task_id] = placed
            self._put(node, placed)

    def _put(self, node: NodeLeases, lease: Lease, times: int = 1) -> None:
        """What is counted may be more than there is: others were quicker."""
        need = lease.need
        if lease.is_own:
            own = node.own.get(lease.worker_id)
            if own is not None:
                own.left = own.left.after(need.of_cards, lease.at, times)
            need = need.of_host
        at = () if lease.is_own else lease.at
        self.packing.shift(node.capacity, at, need, times)

    def end(self, task_id: str) -> Lease | None:
        """It is no longer there; what it had."""
        self._unplaced.pop(task_id, None)
        lease = self.by_task.pop(task_id, None)
        if lease is not None and (node := self._nodes.get(lease.node_id)) is not None:
            self._put(node, lease, times=-1)
        return lease

    def linger(self, task_id: str, attempt: int) -> None:
        """An attempt was told to stop; what it has of GPUs it has until it did."""
        lease = self.by_task.get(task_id)
        if lease is not None and lease.cards:
            self.by_task[lingering(task_id, attempt)] = self.by_task.pop(task_id)

    def counts(self, task_id: str) -> bool:
        return task_id in self.by_task or task_id in self._unplaced

    def on(self, node_id: str) -> Iterator[tuple[str, Lease]]:
        """What is given out of one node."""
        return (
            (t, lease) for t, lease in self.by_task.items() if lease.node_id == node_id
        )

    def leased_mb(self, worker_id: str) -> int:
        """What tasks have of the memory of the cards this worker has for itself."""
        leases = self.by_task.values()
        own = (lease for lease in leases if lease.is_own)
        return sum(
            lease.need.gpu_mb * lease.need.gpus
            for lease in own
            if lease.worker_id == worker_id
        )

    def lease_mb(self, lease: Lease) -> int:
        """The memory of the smallest card it is on."""
        node = self._nodes.get(lease.node_id)
        if node is None:
            return 0
        room = node.own.get(lease.worker_id) if lease.is_own else node.capacity
        cards = room.offer.cards if room is not None else ()
        return min((cards[at].memory_mb for at in lease.at), default=0)

    def card_mb(self, worker_id: str, node_id: str) -> int:
        """The memory of the largest card a worker can use."""
        node = self._nodes.get(node_id)
        if node is None:
            return 0
        cards = node.own.get(worker_id, node.capacity).offer.cards
        return max((card.memory_mb for card in cards), default=0)


def lingering(task_id: str, attempt: int) -> str:
    """What an attempt that was told to stop is called; the task may be elsewhere."""
    return f"{task_id} (attempt {attempt}, stopping)"


def _card(offer: CardOffer, is_free: bool) -> Card:
    if not is_free:
        return Card(offer.kind, offer.vendor, 0, 0)
    return Card(offer.kind, offer.vendor, offer.memory_mb)


def _tightest(room: NodeCapacity, need: Need) -> tuple[int, ...] | None:
    """The cards that are left with least."""
    if room.short(need) is not None:
        return None
    left, cards = room.left, room.offer.cards
    fit = [
        at
        for at, card in enumerate(cards)
        if card.suits(need)
        and left.shares[at] >= need.share
        and left.card_mb[at] >= need.gpu_mb
    ]
    fit.sort(key=lambda at: (left.shares[at], left.card_mb[at], at))
    return tuple(fit[: need.gpus])
