"""The workers of a simulated cluster: what they have, and when they are down."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from corral.errors import InvalidField
from corral.scheduler.events import NodeOffers

_PART = re.compile(
    r"(?:(?P<count>[1-9]\d{0,4})x)?(?P<memory>\d+(?:\.\d+)?)GB"
    r"(?:@(?P<speed>\d+(?:\.\d+)?))?(?:/(?P<slots>[1-9]\d{0,2}))?",
    re.IGNORECASE,
)
Period = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Machine:
    """One worker; without `job_types` it serves all there are.

    `outages` are when it goes down and when it is back, in order; its models and what
    it ran are lost each time.
    """

    name: str
    memory_mb: float | None = None
    speed: float = 1.0
    slots: int = 1
    job_types: frozenset[str] | None = None
    node_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: frozenset[str] = frozenset()
    outages: tuple[Period, ...] = ()
    offers: NodeOffers | None = None
    """What its node has for tasks with needs."""


def parse_fleet(text: str, prefix: str = "w") -> list[Machine]:
    """Workers from words like `6x24GB,3x48GB@1.5,1x80GB@2/4`.

    How many, the memory each has for models, its speed (1 without), and how many tasks
    it runs at a time (1 without).

    Raises:
        InvalidField: a word does not read so.
    """
    machines: list[Machine] = []
    for word in text.split(","):
        found = _PART.fullmatch(word.strip())
        speed = float(found["speed"] or 1.0) if found else 0.0
        if found is None or speed <= 0.0:
            raise InvalidField(
                f"{word!r}: workers read like 2x24GB, 1x48GB@1.5 (speed) or "
                "1x80GB@2/4 (tasks at a time)",
                field="workers",
            )
        for _ in range(int(found["count"] or 1)):
            name = f"{prefix}{len(machines) + 1:03}"
            memory_mb = float(found["memory"]) * 1024
            machines.append(Machine(name, memory_mb, speed, int(found["slots"] or 1)))
    return machines


def speed_of(machines: Iterable[Machine]) -> float:
    """Tasks of one second they do in a second, all together."""
    return sum(machine.speed * machine.slots for machine in machines)


def failing(machines: list[Machine], span_s: float, down_s: float) -> list[Machine]:
    """The same, each of them down once, one after the other."""
    step_s = span_s / (len(machines) + 2)
    return [
        replace(machine, outages=((n * step_s, n * step_s + down_s),))
        for n, machine in enumerate(machines, 1)
    ]
