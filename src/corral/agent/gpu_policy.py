"""What a node is told of its GPUs: which to offer, how to read them, when one rests."""

from __future__ import annotations

from dataclasses import dataclass, field

from corral.core.nodes.breaker import BreakerPolicy


@dataclass(frozen=True, slots=True)
class GpuPolicy:
    """What a node is told of its GPUs.

    Attributes:
        devices: Cards to offer by number, id or address; None for all fit ones.
        simulated: Cards to simulate, `2x24GB,1x8GB`.
        look_s: Time between readings of a vendor that answers quickly.
        timeout_s: How long a vendor's library may take to answer.
        memory_share: What part of a card's memory may be given out.
        quarantine: How many errors within which time put a card in quarantine, and
            for how long.
    """

    devices: tuple[str, ...] | None = None
    simulated: str = ""
    look_s: float = 5.0
    timeout_s: float = 10.0
    memory_share: float = 0.9
    quarantine: BreakerPolicy = field(
        default_factory=lambda: BreakerPolicy(3, 600.0, 300.0, 86_400.0)
    )
