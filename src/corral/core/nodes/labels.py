"""Which nodes a task may run on: labels it wants, taints it tolerates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from corral.errors import InvalidField

MOST_LABELS = 32
_KEYS = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")
_VALUES = re.compile(r"[A-Za-z0-9._/-]{0,63}")


@dataclass(frozen=True, slots=True)
class Constraint:
    """`labels` are those a node must have, all of them; `tolerates` names taints.

    A tolerated `spot` means every taint of that key, `tier=a` that one alone.
    """

    labels: tuple[tuple[str, str], ...] = ()
    tolerates: frozenset[str] = frozenset()

    def missing(self, labels: Mapping[str, str]) -> list[str]:
        """What a node with these labels lacks."""
        return [f"{k}={v}" for k, v in self.labels if labels.get(k) != v]

    def repelled(self, taints: Iterable[str]) -> list[str]:
        """The taints that keep it away."""
        return [t for t in sorted(taints) if not self._tolerates(t)]

    def _tolerates(self, taint: str) -> bool:
        return taint in self.tolerates or key_of(taint) in self.tolerates

    @property
    def text(self) -> str:
        """The same for equal ones."""
        return f"{_pairs(self.labels)} {','.join(sorted(self.tolerates))}"


ANYWHERE = Constraint()
"""Of a task that asks for nothing: it stays away from every taint."""


def key_of(taint: str) -> str:
    return taint.partition("=")[0]


def check_wish(node_labels: Mapping[str, str], tolerates: Sequence[str]) -> None:
    """Raises:
    InvalidField: a name or value that no node could have.
    """
    if len(node_labels) > MOST_LABELS or len(tolerates) > MOST_LABELS:
        raise InvalidField(f"at most {MOST_LABELS} are allowed", field="node_labels")
    for key, value in node_labels.items():
        check_label(key, value, "node_labels")
    for taint in tolerates:
        check_taint(taint, "tolerates")


def _pairs(labels: Iterable[tuple[str, str]]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels)


def read_pairs(text: str, bare: str = "") -> dict[str, str]:
    """`rack=a,disk=ssd` as a dict; `bare` is the value of a key without one."""
    pairs = [part.partition("=") for part in text.split(",") if part]
    return {key: value if equals else bare for key, equals, value in pairs}


def check_label(key: str, value: str, field: str) -> None:
    if not _KEYS.fullmatch(key) or not value or not _VALUES.fullmatch(value):
        raise InvalidField(
            f"{key[:64]}={value[:64]}: a label reads KEY=VALUE, each at most 63 "
            "letters, digits, '.', '_', '/' or '-'",
            field=field,
        )


def check_taint(taint: str, field: str) -> None:
    key, _, value = taint.partition("=")
    if not _KEYS.fullmatch(key) or not _VALUES.fullmatch(value):
        raise InvalidField(
            f"{taint[:128]}: a taint reads KEY or KEY=VALUE, each at most 63 "
            "letters, digits, '.', '_', '/' or '-'",
            field=field,
        )
