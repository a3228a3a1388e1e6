"""Which worker is given which cards of its node, and how it is shown them.

Pure: it looks at no machine. What a worker asks for is `WorkerSpec.gpus`; its grammar
stands in `core/nodes/worker.py` and is read here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from corral.core.nodes.gpu import Gpu, is_called
from corral.errors import InvalidField

MOST = 256
_LONGEST = 1000
_INDEX = "gpu:"
# What tells a process which cards it may see, whatever the vendor.
VARIABLES = (
    "CORRAL_GPUS",
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ONEAPI_DEVICE_SELECTOR",
    "ZE_AFFINITY_MASK",
    "ZE_ENABLE_PCI_ID_DEVICE_ORDER",
)
# An index no machine has: an empty list would mean "all" to some of the runtimes.
NO_GPU = "-1"


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """So many cards of any kind, or, when there are names, those."""

    count: int = 0
    names: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.count > 0


@dataclass(frozen=True, slots=True)
class GpuClaim:
    """A worker that is to have cards; `held` are the ids it has now."""

    worker_id: str
    name: str
    wish: GpuRequest
    held: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BoundGpus:
    """The cards a worker has for itself, or, with none, why."""

    cards: tuple[Gpu, ...] = ()
    refusal: str = ""


def read_wish(text: str) -> GpuRequest:
    """What `WorkerSpec.gpus` asks for.

    Raises:
        InvalidField: it is not written as `core/nodes/worker.py` says.
    """
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    if len(text) > _LONGEST or not text.isprintable() or not all(words):
        raise _unclear(text)
    if len(words) == 1 and words[0].isdecimal() and len(words[0]) < 4:
        count = int(words[0])
        if count > MOST:
            raise _unclear(text)
        return GpuRequest(count)
    names = tuple(_card_name(word, text) for word in words)
    if len(set(names)) < len(names):
        raise InvalidField("gpus names a card twice", field="gpus")
    return GpuRequest(len(names), names)


def _card_name(word: str, text: str) -> str:
    """What `is_called` knows a card by."""
    place = word.casefold().removeprefix(_INDEX)
    if place != word.casefold():
        if not place.isdecimal() or len(place) > 3:
            raise _unclear(text)
        return place
    if len(word) < 8:
        raise _unclear(text)
    return word


def _unclear(text: str) -> InvalidField:
    return InvalidField(
        f"gpus is how many cards (1 to {MOST}) or which ones (gpu:0,gpu:1, ids), "
        f"not {text[:80]!r}",
        field="gpus",
    )


def bind(
    wants: Sequence[GpuClaim], gpus: Sequence[Gpu], taken: Set[str] = frozenset()
) -> dict[str, BoundGpus]:
    """Who gets which cards: each card goes to one worker at most.

    Who has fit cards keeps them. Then come those who name theirs, then the others,
    each in the order given; they get cards of one vendor with the most memory on
    offer. The same question always gets the same answer. Cards that are `taken`, by
    tasks of others, are not given before they are given back.
    """
    by_id = {gpu.id: gpu for gpu in gpus}
    owners: dict[str, GpuClaim] = {}
    bound: dict[str, BoundGpus] = {}
    for want in wants:
        kept = _kept(want, by_id)
        if kept and not any(card.id in owners for card in kept):
            _give(want, kept, owners, bound)
    for want in sorted(wants, key=lambda want: not want.wish.names):
        if want.worker_id in bound:
            continue
        left = [gpu for gpu in gpus if gpu.id not in owners and gpu.id not in taken]
        free = [gpu for gpu in left if is_free(gpu)]
        chosen = _choose(want.wish, free)
        if chosen:
            _give(want, chosen, owners, bound)
        else:
            refusal = _refuse(want, gpus, owners, taken)
            bound[want.worker_id] = BoundGpus(refusal=refusal)
    return bound


def _give(
    want: GpuClaim,
    cards: Sequence[Gpu],
    owners: dict[str, GpuClaim],
    bound: dict[str, BoundGpus],
) -> None:
    bound[want.worker_id] = BoundGpus(tuple(cards))
    owners.update({card.id: want for card in cards})


def _kept(want: GpuClaim, by_id: Mapping[str, Gpu]) -> list[Gpu]:
    """What it has, when all of it is still fit and is what it asks for."""
    cards = [by_id[name] for name in want.held if name in by_id]
    fits = len(cards) == len(want.held) == want.wish.count
    if not fits or not all(card.is_offered for card in cards):
        return []
    names = want.wish.names
    pairs = zip(cards, names, strict=True) if names else ()
    return cards if all(is_called(card, name) for card, name in pairs) else []


def is_free(gpu: Gpu) -> bool:
    """May it be given out, and is there anything left of it?"""
    return gpu.is_offered and gpu.memory_offered_mb != 0.0


def _choose(wish: GpuRequest, free: Sequence[Gpu]) -> list[Gpu]:
    if wish.names:
        return _named(wish.names, free)
    best: list[Gpu] = []
    for vendor in dict.fromkeys(gpu.vendor for gpu in free):
        ranked = sorted((g for g in free if g.vendor == vendor), key=_rank)
        chosen = ranked[: wish.count]
        if len(chosen) == wish.count and _room(chosen) > _room(best):
            best = chosen
    return sorted(best, key=lambda gpu: gpu.index)


def _named(names: Sequence[str], free: Sequence[Gpu]) -> list[Gpu]:
    chosen: list[Gpu] = []
    for name in names:
        called = (g for g in free if is_called(g, name) and g not in chosen)
        card = next(called, None)
        if card is None:
            return []
        chosen.append(card)
    return chosen


def _rank(gpu: Gpu) -> tuple[float, int, str]:
    return -_offered_mb(gpu), gpu.index, gpu.id


def _room(cards: Sequence[Gpu]) -> float:
    return sum(map(_offered_mb, cards)) if cards else -1.0


def _offered_mb(gpu: Gpu) -> float:
    """Where nobody tells what is in use, all of it may be free, or nothing."""
    return 0.0 if gpu.memory_offered_mb is None else gpu.memory_offered_mb


def _refuse(
    want: GpuClaim,
    gpus: Sequence[Gpu],
    owners: Mapping[str, GpuClaim],
    taken: Set[str],
) -> str:
    """Why it gets none, with a word on each card."""
    names, count = want.wish.names, want.wish.count
    for name in names:
        if not any(is_called(gpu, name) for gpu in gpus):
            shown = f"{_INDEX}{name}" if name.isdecimal() else name
            return f"no GPU of this node is {shown}"
    if not gpus:
        return "this node has no GPU"
    looked = [g for g in gpus if not names or any(is_called(g, n) for n in names)]
    reasons = "; ".join(
        f"{_title(g)} {_why_not(g, owners.get(g.id), g.id in taken)}" for g in looked
    )
    if names or count == 1:
        return f"no GPU is free: {reasons}"
    return f"no {count} GPUs of one vendor are free: {reasons}"


def _title(gpu: Gpu) -> str:
    return f"{_INDEX}{gpu.index} ({gpu.name})"


def _why_not(gpu: Gpu, owner: GpuClaim | None, is_taken: bool) -> str:
    if owner is not None:
        return f"is held by worker {owner.name} ({owner.worker_id})"
    if is_taken:
        return "is with a task that runs"
    if gpu.quarantine is not None:
        return f"is quarantined: {gpu.quarantine.reason}"
    if gpu.error:
        return f"cannot be read: {gpu.error}"
    if not gpu.is_offered:
        return "is integrated" if gpu.is_integrated else "is not offered"
    if gpu.memory_offered_mb == 0.0:
        users = ", ".join(f"{p.name or 'process'} {p.pid}" for p in gpu.processes[:3])
        return "is used by others" + (f": {users}" if users else "")
    return "is free"


def visible(cards: Sequence[Gpu]) -> dict[str, str]:
    """The variables that show a process these cards, and no other of ROCm or CUDA.

    CUDA takes UUIDs, of MIG instances too. HIP counts among what ROCR has left over,
    so its numbers start again at 0.
    """
    nvidia, amd, intel = (
        [card for card in cards if card.vendor == vendor]
        for vendor in ("nvidia", "amd", "intel")
    )
    shown = {
        "CORRAL_GPUS": ",".join(card.id for card in cards),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(card.id for card in nvidia) or NO_GPU,
        "ROCR_VISIBLE_DEVICES": ",".join(map(_rocr_name, amd)) or NO_GPU,
        "HIP_VISIBLE_DEVICES": ",".join(map(str, range(len(amd)))) or NO_GPU,
    }
    if intel:
        shown["ZE_ENABLE_PCI_ID_DEVICE_ORDER"] = "1"
        places = ",".join(str(card.vendor_index) for card in intel)
        shown["ZE_AFFINITY_MASK"] = places
        shown["ONEAPI_DEVICE_SELECTOR"] = "level_zero:gpu"
    return shown


def _rocr_name(card: Gpu) -> str:
    """ROCm takes its own ids; a card without a serial number has only its place."""
    return card.id if card.id.startswith("GPU-") else str(card.vendor_index)
