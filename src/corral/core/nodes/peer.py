"""Nodes that give each other the files of models: what one offers, and who may take.

A node's secret is known to itself and the manager alone. Whoever may take a file gets
the manager's signature for that file, under the secret of the node that gives it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Peer:
    """A node that gives; `models` are those it has whole, by name: their marks."""

    url: str
    secret: str = field(repr=False)
    models: Mapping[str, str] = field(default_factory=dict)


def mark_of(files: Iterable[tuple[str, str]]) -> str:
    """The same for the same files, each by its SHA-256 and its name."""
    told = "".join(f"{sha256} {name}\n" for sha256, name in files)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def edition_of(mark: str, kind: str, dtype: str | None, trusts: bool) -> str:
    """The same for what a load makes the same of: files, and how they are read."""
    told = f"{mark} {kind} {dtype or ''} {trusts}"
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def signature(secret: str, sha256: str, until: int) -> str:
    """Lets a file be taken until then, in epoch seconds."""
    text = f"{sha256} {until}".encode()
    return hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


def is_signed(secret: str, sha256: str, until: int, shown: str) -> bool:
    right = signature(secret, sha256, until).encode()
    return hmac.compare_digest(right, shown.encode("utf-8", "replace"))


def file_path(secret: str, sha256: str, until: int) -> str:
    """Where a peer has a file, for somebody who may take it."""
    token = signature(secret, sha256, until)
    return f"/files/{sha256}?until={until}&token={token}"
