"""What every probe is, and what it answers. Knows no vendor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

from corral.core.nodes.gpu import Gpu, GpuProcess

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Cards found; with none, `absent` says why there is nothing to read here."""

    gpus: tuple[Gpu, ...] = ()
    absent: str | None = None


class Probe(Protocol):
    """One vendor's way to its cards. Whatever it raises, hangs in or kills is its own.

    A probe may keep its library open between readings; `close` ends that.
    """

    def read(self) -> ProbeResult: ...

    def close(self) -> None: ...


def to_plain(finding: ProbeResult) -> dict[str, Any]:
    return {"gpus": [asdict(gpu) for gpu in finding.gpus], "absent": finding.absent}


def from_plain(told: Mapping[str, Any]) -> ProbeResult:
    gpus = tuple(_gpu(card) for card in told.get("gpus") or ())
    absent = told.get("absent")
    return ProbeResult(gpus, str(absent) if absent else None)


# Whether a card is fit is not for a probe to say.
_FIELDS = frozenset(field.name for field in fields(Gpu)) - {"health", "quarantine"}


def _gpu(told: Mapping[str, Any]) -> Gpu:
    values = {name: value for name, value in told.items() if name in _FIELDS}
    processes = tuple(GpuProcess(**row) for row in told.get("processes") or ())
    return Gpu(**{**values, "processes": processes})


def free_mb(total: float | None, used: float | None) -> float | None:
    """What is left; unknown when one of the two is."""
    if total is None or used is None:
        return None
    return max(0.0, total - used)


def number(value: Any) -> float | None:
    """A number the tools wrote as one, as text, or with its unit; else None."""
    if isinstance(value, Mapping):
        value = value.get("value")
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    try:
        return float(str(value).strip().split(" ")[0].rstrip("%WCc"))
    except ValueError:
        return None


def text(value: Any) -> str | None:
    """A word that says something; tools write N/A where they have nothing to say."""
    word = str(value).strip() if value is not None else ""
    return word if word and word.upper() not in ("N/A", "NONE", "UNKNOWN") else None
