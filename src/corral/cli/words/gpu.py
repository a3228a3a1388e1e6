"""A GPU on the terminal: how it is, what of it is used and offered, who has it.

A card is told as `core.nodes.gpu.Gpu` has it; a figure the driver does not tell is
None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from corral.cli.terminal import output

if TYPE_CHECKING:
    from corral.cli.terminal.output import Columns
    from corral.wire.workers import WorkerInfo

Card = dict[str, Any]


def offered(cards: Sequence[Card]) -> str:
    """How many cards are offered, and what of their memory may be given out."""
    free_ones = [card for card in cards if card.get("is_offered")]
    if not free_ones:
        return f"0 of {len(cards)}" if cards else ""
    words = str(len(free_ones))
    if any(card.get("is_simulated") for card in free_ones):
        words += " simulated"
    sizes = [(c.get("memory_offered_mb"), c.get("memory_total_mb")) for c in free_ones]
    known = [(free, total) for free, total in sizes if free is not None and total]
    if not known:
        return words
    free, total = (sum(column) for column in zip(*known, strict=True))
    return f"{words}, {of_memory(free, total)} offered"


def of_memory(part_mb: float, total_mb: float) -> str:
    return f"{part_mb / 1024:.0f}/{total_mb / 1024:.0f} GB"


def memory(memory_mb: float | None) -> str:
    return "" if memory_mb is None else f"{memory_mb / 1024:.1f} GB"


def degrees(card: Card) -> str:
    told = card.get("temperature_c")
    return "" if told is None else f"{told:.0f}"


def model(card: Card) -> str:
    """Its name without words that all such cards have."""
    told = str(card.get("name") or "")
    return told.removeprefix("NVIDIA ").removeprefix("Simulated ")


def state(card: Card) -> str:
    """How a card is, in a few words."""
    if held := card.get("quarantine"):
        return f"quarantined until {held['until'][:16]}: {held['reason']}"
    if card.get("error"):
        return f"cannot be read: {card['error']}"
    return "offered" if card.get("is_offered") else "not offered"


def owners(workers: Iterable[WorkerInfo]) -> dict[str, WorkerInfo]:
    """Which worker has a card for itself, by the card's id."""
    return {card["id"]: worker for worker in workers for card in worker.gpu_info}


COLUMNS: Columns[Card] = {
    "NODE": lambda card: card["node_id"],
    "GPU": lambda card: f"gpu:{card['index']}",
    "NAME": lambda card: card["name"],
    "MEMORY": lambda card: memory(card.get("memory_total_mb")),
    "OFFERED": lambda card: memory(card.get("memory_offered_mb")),
    "USE": lambda card: output.percent(card.get("utilization_percent")),
    "TEMPERATURE": lambda card: f"{told} C" if (told := degrees(card)) else "",
    "STATE": state,
    "WORKER": lambda card: card["worker_id"],
    "ID": lambda card: card["id"],
}
