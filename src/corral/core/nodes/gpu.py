"""GPUs of a node as values: what a card is, which are offered, what has changed.

Nothing here looks at a machine; that is `agent/probe`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from corral.errors import InvalidField

# The order cards are numbered in on a node, those of one vendor in its own order.
_VENDORS = ("nvidia", "amd", "intel", "apple", "simulated")
_PREFIX_LENGTH = 8
_NEWS_MB = 256.0
_NEWS_SHARE = 0.01
_SIMULATED = re.compile(r"(?:(\d{1,3}) ?x ?)?(\d{1,6}(?:\.\d+)?) ?([MG])i?B?", re.I)
_MB = {"M": 1.0, "G": 1024.0}


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that uses a card; `memory_mb` is None where the driver does not say."""

    pid: int
    name: str = ""
    memory_mb: float | None = None
    is_ours: bool = False


class GpuHealth(StrEnum):
    OK = "ok"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why a card is left alone; `since` names this quarantine when it is lifted."""

    reason: str
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card, or one part of a card that is used like one.

    Attributes:
        id: UUID or PCI address; the same after a restart, and for no other card.
        index: Its number on this node, in the order cards are shown.
        vendor_index: Its number in the vendor's own tools.
        memory_used_mb: Memory in use by anybody; None where the driver does not say,
            and then `memory_free_mb` is None too.
        compute: Compute capability (`9.0`) or graphics target (`gfx1100`).
        is_integrated: Part of the processor; offered only when named.
        shares_memory: Its memory is the machine's.
        mig_parent: Id of the card this is a MIG instance of.
        is_offered: May be given to workers.
        memory_offered_mb: What may be given out now: the node's share of its memory
            less what anybody uses; 0 when it is not offered, None when it is and the
            driver does not say what is in use.
        errors: What the driver counted of hardware errors, by kind (`xid_79`,
            `ecc_uncorrected`); kinds it does not tell are left out.
        health: Quarantined after repeated errors, and then not offered.
        error: Why its last reading failed; the figures are then the former ones.
    """

    id: str
    vendor: str
    name: str
    index: int = 0
    vendor_index: int = 0
    pci_address: str | None = None
    memory_total_mb: float | None = None
    memory_used_mb: float | None = None
    memory_free_mb: float | None = None
    utilization_percent: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    driver: str | None = None
    compute: str | None = None
    is_integrated: bool = False
    is_simulated: bool = False
    shares_memory: bool = False
    mig_parent: str | None = None
    is_offered: bool = False
    memory_offered_mb: float | None = None
    errors: Mapping[str, int] = field(default_factory=dict)
    health: GpuHealth = GpuHealth.OK
    quarantine: Quarantine | None = None
    error: str | None = None
    processes: tuple[GpuProcess, ...] = ()


class GpuEvent(StrEnum):
    ADDED = "gpu_added"
    REMOVED = "gpu_removed"
    FAILED = "gpu_failed"
    RECOVERED = "gpu_recovered"
    DRIVER_CHANGED = "gpu_driver_changed"
    QUARANTINED = "gpu_quarantined"


@dataclass(frozen=True, slots=True)
class GpuChange:
    event: GpuEvent
    gpu: Gpu
    detail: str = ""


def arrange(
    found: Iterable[Gpu], devices: Sequence[str] | None = None, share: float = 1.0
) -> list[Gpu]:
    """Cards of all vendors: with ids that are distinct, numbered, offered or not."""
    return offer(number(found), devices, share)


def number(found: Iterable[Gpu]) -> list[Gpu]:
    """Cards found in any order in the order of the node, with ids that are distinct."""
    cards = _distinct(sorted(found, key=_place))
    return [replace(card, index=index) for index, card in enumerate(cards)]


def offer(
    cards: Sequence[Gpu], devices: Sequence[str] | None = None, share: float = 1.0
) -> list[Gpu]:
    """Numbered cards, each offered or not, with the memory that may be given out.

    Args:
        cards: As `number` gives them, with their health.
        devices: Cards to offer by number, id or PCI address; None for every one that
            is neither integrated nor divided, an empty list for none.
        share: What part of a card's memory may be given out.
    """
    divided = {card.mig_parent for card in cards if card.mig_parent}
    offered = []
    for card in cards:
        is_well = card.error is None and card.health is GpuHealth.OK
        is_wanted = not card.is_integrated if devices is None else _in(card, devices)
        is_offered = is_well and is_wanted and card.id not in divided
        room = _room_mb(card, share) if is_offered else 0.0
        offered.append(replace(card, is_offered=is_offered, memory_offered_mb=room))
    return offered


def _room_mb(card: Gpu, share: float) -> float | None:
    if card.memory_total_mb is None or card.memory_used_mb is None:
        return None
    return max(0.0, card.memory_total_mb * share - card.memory_used_mb)


def _place(card: Gpu) -> tuple[bool, int, int, str]:
    known = card.vendor in _VENDORS
    rank = _VENDORS.index(card.vendor) if known else len(_VENDORS)
    return card.is_integrated, rank, card.vendor_index, card.id


def _distinct(cards: Sequence[Gpu]) -> list[Gpu]:
    """Some boards carry one serial number for all: their addresses tell them apart."""
    seen = Counter(card.id for card in cards)
    used: set[str] = set()
    result = []
    for card in cards:
        name = card.id
        if seen[name] > 1 and card.pci_address:
            name = card.pci_address
        while name in used:
            name = f"{card.id}/{len(used)}"
        used.add(name)
        result.append(replace(card, id=name))
    return result


def _in(card: Gpu, devices: Sequence[str]) -> bool:
    return any(is_called(card, device) for device in devices)


def is_called(card: Gpu, device: str) -> bool:
    """Is `device` this card: its number, id, PCI address, or the start of its id?"""
    word = device.casefold()
    if word.isdecimal() and len(word) < _PREFIX_LENGTH:
        return card.index == int(word)
    names = [card.id.casefold(), (card.pci_address or "").casefold()]
    if card.mig_parent:
        names.append(card.mig_parent.casefold())
    is_start = len(word) >= _PREFIX_LENGTH
    return any(word == name or (is_start and name.startswith(word)) for name in names)


def compare(old: Iterable[Gpu], new: Iterable[Gpu]) -> list[GpuChange]:
    """What happened between two readings: cards that came, went, failed or changed."""
    before, after = ({card.id: card for card in cards} for cards in (old, new))
    changes = [
        GpuChange(GpuEvent.REMOVED, card)
        for card in before.values()
        if card.id not in after
    ]
    for card in after.values():
        former = before.get(card.id)
        if former is None:
            changes.append(GpuChange(GpuEvent.ADDED, card))
        else:
            changes += _between(former, card)
    return changes


def _between(former: Gpu, card: Gpu) -> list[GpuChange]:
    changes = []
    if card.error and not former.error:
        changes.append(GpuChange(GpuEvent.FAILED, card, card.error))
    if former.error and not card.error:
        changes.append(GpuChange(GpuEvent.RECOVERED, card, former.error))
    if former.health is not card.health:
        changes.append(_other_health(former, card))
    if former.driver and card.driver and former.driver != card.driver:
        detail = f"{former.driver} is now {card.driver}"
        changes.append(GpuChange(GpuEvent.DRIVER_CHANGED, card, detail))
    return changes


def _other_health(former: Gpu, card: Gpu) -> GpuChange:
    if card.quarantine is not None:
        return GpuChange(GpuEvent.QUARANTINED, card, card.quarantine.reason)
    return GpuChange(GpuEvent.RECOVERED, card, "it is out of quarantine")


def is_news(old: Sequence[Gpu], new: Sequence[Gpu]) -> bool:
    """Does the manager have to know before the next regular sample?"""
    if compare(old, new):
        return True
    before = {card.id: card for card in old}
    return any(_has_moved(before[card.id], card) for card in new)


def _has_moved(former: Gpu, card: Gpu) -> bool:
    if (former.is_offered, former.quarantine) != (card.is_offered, card.quarantine):
        return True
    if former.memory_used_mb is None or card.memory_used_mb is None:
        return former.memory_used_mb is not card.memory_used_mb
    step = max(_NEWS_MB, _NEWS_SHARE * (card.memory_total_mb or 0.0))
    return abs(card.memory_used_mb - former.memory_used_mb) >= step


def read_simulated(text: str) -> list[float]:
    """Memory sizes in MB of `2x24GB,1x8GB`.

    Raises:
        InvalidField: it is not written like that.
    """
    sizes: list[float] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        found = _SIMULATED.fullmatch(part)
        if found is None or float(found[2]) <= 0:
            raise InvalidField(
                f"simulated GPUs are written like 2x24GB,1x8GB, not {part!r}",
                field="simulated_gpus",
            )
        size = float(found[2]) * _MB[found[3].upper()]
        sizes += [size] * int(found[1] or 1)
    return sizes
