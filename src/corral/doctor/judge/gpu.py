"""Lines about GPUs: each card, and for cards that are not seen, why and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from corral.core.nodes.gpu import Gpu, is_called
from corral.doctor.judge.gpu_reason import KernelFact, closed_files, reason
from corral.doctor.result import CheckResult, ok, problem, warn

NAME = "gpu"
_NONE_WANTED = "CORRAL_GPU_DEVICES=none says that none is wanted"


@dataclass(frozen=True, slots=True)
class GpuFact:
    """What the probes said: cards, and why a vendor's cannot be read.

    `devices` is the setting: None for all, empty for none. `is_needed` is false on a
    machine that runs no agent.
    """

    cards: Sequence[Gpu]
    faults: Mapping[str, str]
    scene: KernelFact
    devices: tuple[str, ...] | None = None
    is_needed: bool = True


def judge(told: GpuFact) -> Iterator[CheckResult]:
    yield from (_card(card) for card in told.cards)
    if told.devices == ():
        yield ok(NAME, f"none is offered, as CORRAL_GPU_DEVICES wants ({_many(told)})")
        return
    if not told.is_needed:
        yield ok(NAME, "no agent runs here, so that none is needed")
        return
    yield from _faults(told)
    yield from _closed(told)
    yield from _named(told)
    yield from _none(told)


def _many(told: GpuFact) -> str:
    return f"{len(told.cards)} seen"


def _card(card: Gpu) -> CheckResult:
    words = [card.name, card.id, _memory(card)]
    words += [f"driver {card.driver}"] if card.driver else []
    words += ["simulated"] if card.is_simulated else []
    words += ["integrated"] if card.is_integrated else []
    words.append("offered" if card.is_offered else "not offered")
    found = f"{card.index}: {', '.join(words)}"
    facts = asdict(card)
    # Only its agent knows that; the manager tells it of every node.
    facts.pop("quarantine", None)
    fix = "see 'dmesg', and reset or restart the machine if it stays so"
    if card.error:
        return problem(NAME, f"{found}: {card.error}", fix, **facts)
    if errors := [f"{kind} {n}" for kind, n in card.errors.items() if n]:
        found += f"; hardware errors: {', '.join(errors)}"
        return warn(NAME, found, fix, **facts)
    return ok(NAME, found, **facts)


def _memory(card: Gpu) -> str:
    if card.memory_total_mb is None:
        return "memory unknown"
    text = f"{card.memory_total_mb:.0f} MiB"
    if card.memory_used_mb is None or card.memory_free_mb is None:
        return text
    return f"{text}, {card.memory_used_mb:.0f} used, {card.memory_free_mb:.0f} free"


def _faults(told: GpuFact) -> Iterator[CheckResult]:
    has_other = any(card.is_offered for card in told.cards)
    for vendor, said in told.faults.items():
        found, fix = reason(vendor, said, told.scene)
        # Nearly every processor of theirs has one that nobody means to compute on.
        is_minor = vendor == "intel" and has_other
        make = warn if is_minor else problem
        yield make(NAME, " ".join(found.split()), fix, vendor=vendor)


def _closed(told: GpuFact) -> Iterator[CheckResult]:
    """Cards that are seen, but whose files this user may not open."""
    for vendor in sorted({card.vendor for card in told.cards} - set(told.faults)):
        if closed := closed_files(vendor, told.scene):
            yield problem(NAME, *closed, vendor=vendor)


def _named(told: GpuFact) -> Iterator[CheckResult]:
    for device in told.devices or ():
        if not any(is_called(card, device) for card in told.cards):
            found = f"CORRAL_GPU_DEVICES names {device}, which is not here"
            yield problem(NAME, found, "correct it; the cards found are listed above")


def _none(told: GpuFact) -> Iterator[CheckResult]:
    if any(card.is_offered for card in told.cards) or told.faults:
        return
    if told.cards:
        if told.devices is None and all(card.is_integrated for card in told.cards):
            found = "no card is offered: integrated ones are not unless named"
            yield warn(NAME, found, f"CORRAL_GPU_DEVICES=0 offers it; {_NONE_WANTED}")
        return
    fix = f"{_NONE_WANTED}; CORRAL_SIMULATED_GPUS=1x8GB makes one up"
    if told.scene.is_container:
        fix = f"give this container its devices (--gpus all); {fix}"
    yield problem(NAME, "no GPU is on this machine", fix)
