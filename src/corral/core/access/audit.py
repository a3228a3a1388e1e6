"""Who asked for what, as values: rows of the trail, which of them, and what a look
through their chain found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class AuditRow:
    at: datetime
    actor: str
    action: str
    target: str
    allowed: bool
    ip: str
    request_id: str
    data: Mapping[str, Any] = field(default_factory=dict)
    seq: int = field(default=0, compare=False)
    """Its place in the chain, once it is stored."""


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """Which rows of the audit log; what is None or empty lets all through.

    `action` and `target` are how those begin; rows are older than `before`, a seq.
    """

    actors: tuple[str, ...] = ()
    action: str = ""
    target: str = ""
    allowed: bool | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: int | None = None


EVERYTHING = AuditQuery()


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Rows from `first_seq` to `last_seq`; `fault` says how the chain is broken.

    Those before `keyed_from` have hashes without a key, which others can make too.
    """

    first_seq: int
    last_seq: int
    keyed_from: int
    fault: str = ""

    @property
    def is_intact(self) -> bool:
        return not self.fault
