"""The hash chain of the audit log: each row's hash covers the row before it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import Any

_COVERED = ("actor", "action", "target", "allowed", "ip", "request_id", "data")


@dataclass(frozen=True, slots=True)
class Chain:
    """Both ends of what is kept.

    `anchor` is the hash before the first row kept: pruning moves it along, so that
    rows cut off at either end without it are missed.
    """

    first_seq: int = 1
    anchor: str = ""
    last_seq: int = 0
    last_hash: str = ""


def chain_hash(before: str, row: Mapping[str, Any]) -> str:
    at = row["at"].astimezone(UTC).isoformat(timespec="microseconds")
    covered = [row["seq"], at, *(row[name] for name in _COVERED)]
    text = json.dumps(covered, separators=(",", ":"))
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()


def link(
    chain: Chain, rows: Iterable[Mapping[str, Any]]
) -> tuple[Chain, list[dict[str, Any]]]:
    """Give rows their seq and hash; the chain as it is after them."""
    seq, last = chain.last_seq, chain.last_hash
    linked = []
    for row in rows:
        seq += 1
        entry = {**row, "seq": seq}
        last = chain_hash(last, entry)
        linked.append({**entry, "hash": last})
    return Chain(chain.first_seq, chain.anchor, seq, last), linked


class Verifier:
    """Walks the rows of a chain in order."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._seq, self._hash = chain.first_seq - 1, chain.anchor

    def accepts(self, row: Mapping[str, Any]) -> bool:
        """Is this the row that must come next, unchanged?"""
        self._seq, expected = self._seq + 1, chain_hash(self._hash, row)
        self._hash = row["hash"]
        return bool(row["seq"] == self._seq and self._hash == expected)

    def is_complete(self) -> bool:
        """Was the last row seen the last one written?"""
        chain = self._chain
        return (self._seq, self._hash) == (chain.last_seq, chain.last_hash)
