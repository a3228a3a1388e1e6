"""What a node has for tasks with needs, and what is short where one does not fit.

Nothing here chooses; that is `packing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from corral.core.tasks.needs import WHOLE as WHOLE
from corral.core.tasks.needs import Need as Need


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU as it may be given out; one that must be left alone has a `share` of 0.

    Where its memory is not known it is 0, and no need that names memory fits. One of
    whose memory others use more than is offered takes nothing at all.
    """

    kind: str = ""
    vendor: str = ""
    memory_mb: int = 0
    share: int = WHOLE

    def suits(self, need: Need) -> bool:
        if need.vendor and self.vendor != need.vendor:
            return False
        return not need.kinds or self.kind in need.kinds


class FreeCapacity(NamedTuple):
    """What is free; below nothing where others took what was counted on."""

    cpu_milli: int
    memory_mb: int
    shares: tuple[int, ...] = ()
    """Thousandths, by card."""
    card_mb: tuple[int, ...] = ()

    def after(self, need: Need, cards: Sequence[int], times: int = 1) -> FreeCapacity:
        """What is left when it is taken, or with `times=-1` when it is given back."""
        shares, card_mb = self.shares, self.card_mb
        if cards:
            each, each_mb = list(shares), list(card_mb)
            for card in cards:
                each[card] -= times * need.share
                each_mb[card] -= times * need.gpu_mb
            shares, card_mb = tuple(each), tuple(each_mb)
        return FreeCapacity(
            self.cpu_milli - times * need.cpu_milli,
            self.memory_mb - times * need.memory_mb,
            shares,
            card_mb,
        )


@dataclass(frozen=True, slots=True)
class CapacityOffer:
    """What a node may give out in all, and what others use of its cards' memory."""

    cpu_milli: int
    memory_mb: int
    cards: tuple[Card, ...] = ()
    foreign_mb: tuple[int, ...] = ()
    """By card; none where empty."""

    @property
    def left(self) -> FreeCapacity:
        """What is free while nothing is placed."""
        foreign = self.foreign_mb or (0,) * len(self.cards)
        pairs = zip(self.cards, foreign, strict=True)
        return FreeCapacity(
            self.cpu_milli,
            self.memory_mb,
            tuple(card.share for card in self.cards),
            tuple(card.memory_mb and card.memory_mb - used for card, used in pairs),
        )


@dataclass(slots=True, eq=False)
class NodeCapacity:
    """A node: what it offers, and what is left of that."""

    name: str
    offer: CapacityOffer
    left: FreeCapacity

    @classmethod
    def of(cls, name: str, offer: CapacityOffer) -> NodeCapacity:
        return cls(name, offer, offer.left)

    def change(self, offer: CapacityOffer) -> None:
        """Offer more or less from now on; what is placed stays placed.

        Raises:
            ValueError: there are fewer cards. One that is gone keeps its place, with
                nothing to offer, since others are known by theirs.
        """
        added = len(offer.cards) - len(self.offer.cards)
        if added < 0:
            raise ValueError(f"{self.name} would lose {-added} of its cards")
        old, new = self.offer.left, offer.left
        self.left = FreeCapacity(
            self.left.cpu_milli + new.cpu_milli - old.cpu_milli,
            self.left.memory_mb + new.memory_mb - old.memory_mb,
            _moved(self.left.shares, old.shares, new.shares),
            _moved(self.left.card_mb, old.card_mb, new.card_mb),
        )
        self.offer = offer

    def fits(self, need: Need) -> bool:
        return self.short(need) is None

    def emptied(self, *, of_others: bool = False) -> NodeCapacity:
        """This node with nothing placed, for what-if; also with no memory in use."""
        offer = replace(self.offer, foreign_mb=()) if of_others else self.offer
        return NodeCapacity.of(self.name, offer)

    def holds(self, need: Need, cards: Sequence[int]) -> bool:
        """Whether it fits on just these cards."""
        left = self.left
        if len(set(cards)) != len(cards) or len(cards) != need.gpus:
            return False
        if left.cpu_milli < need.cpu_milli or left.memory_mb < need.memory_mb:
            return False
        return all(
            left.shares[card] >= need.share
            and left.card_mb[card] >= need.gpu_mb
            and self.offer.cards[card].suits(need)
            for card in cards
        )

    def short(self, need: Need) -> Shortage | None:
        """The first thing that is missing here, and how much of it; None: it fits."""
        cpu = need.cpu_milli - self.left.cpu_milli
        if cpu > 0:
            return Shortage(Lack.CPU, cpu)
        memory = need.memory_mb - self.left.memory_mb
        if memory > 0:
            return Shortage(Lack.MEMORY, memory)
        return self._short_of_cards(need) if need.gpus else None

    def _short_of_cards(self, need: Need) -> Shortage | None:
        cards, count = self.offer.cards, need.gpus
        suited = [at for at, card in enumerate(cards) if card.suits(need)]
        if len(suited) < count:
            lack = Lack.GPUS if len(cards) < count else Lack.KIND
            return Shortage(lack, count - len(suited))
        shares, card_mb = self.left.shares, self.left.card_mb
        open_ = [at for at in suited if shares[at] >= need.share]
        if len(open_) < count:
            best = sorted((shares[at] for at in suited), reverse=True)
            return Shortage(
                Lack.SHARE, need.share - best[count - 1], count - len(open_)
            )
        most_mb = sorted((card_mb[at] for at in open_), reverse=True)
        if most_mb[count - 1] >= need.gpu_mb:
            return None
        cards_short = sum(mb < need.gpu_mb for mb in most_mb[:count])
        return Shortage(Lack.GPU_MEMORY, need.gpu_mb - most_mb[count - 1], cards_short)


class Lack(StrEnum):
    """What can be missing, in the order it is looked for."""

    CPU = "cpu"
    MEMORY = "memory"
    GPUS = "gpus"
    KIND = "gpu_kind"
    SHARE = "gpu_share"
    GPU_MEMORY = "gpu_memory"


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is missing: `lacking` thousandths of CPU or of a card, megabytes, or cards.

    Of several cards it is the most that one of them lacks, and `cards` how many do.
    """

    lack: Lack
    lacking: int
    cards: int = 0


def _moved(
    left: tuple[int, ...], old: tuple[int, ...], new: tuple[int, ...]
) -> tuple[int, ...]:
    kept = zip(left, old, new, strict=False)
    return (*(free + now - was for free, was, now in kept), *new[len(old) :])
